//! The device time of operations.

use std::time::{Duration, Instant};

use cuda_async::{Device, Error, policy::SingleStream, prelude::*};
use futures::executor::block_on;

use crate::{kernels::Kernels, on_every_device, polling::iterations_for};

on_every_device! {
    time_is_that_of_the_operation
    nested_time_is_shorter
    failed_operation_has_no_time
}

const LONG: Duration = Duration::from_millis(60);

fn time_is_that_of_the_operation(device: &Device) {
    let (kernels, long) = (Kernels::load(device), iterations_for(device, LONG));
    let slow = || zeros::<u32>(32).then(|out| kernels.spin(out, long));
    let stream = device.new_stream().unwrap();
    let policy = SingleStream::from(stream.clone());
    for awaited in [false, true] {
        let begin = Instant::now();
        let (_, time) = match awaited {
            false => slow().timed().sync_on(&stream),
            true => block_on(slow().timed().schedule(&policy)),
        }
        .unwrap();
        assert!(time <= begin.elapsed(), "{time:?}");
        // Work in front of it and behind it does not count. A busy machine may stop the device in between.
        let is_short = |_| {
            let op = slow().then(|_| value(7).timed()).then(|timed| slow().map(move |_| timed));
            let (seven, nothing) = op.sync_on(&stream).unwrap();
            assert_eq!(seven, 7);
            nothing < time / 2
        };
        assert!((0..8).any(is_short));
    }
}

fn nested_time_is_shorter(device: &Device) {
    let (kernels, long) = (Kernels::load(device), iterations_for(device, LONG / 20));
    let slow = || zeros::<u32>(32).then(|out| kernels.spin(out, long));
    let stream = device.new_stream().unwrap();
    let ((_, inner), outer) = zip!(slow(), slow())
        .timed()
        .then(|timed| slow().map(move |_| timed))
        .timed()
        .sync_on(&stream)
        .unwrap();
    assert!(inner < outer, "{inner:?}, {outer:?}");
    assert!(!inner.is_zero());
}

fn failed_operation_has_no_time(device: &Device) {
    let stream = device.new_stream().unwrap();
    let refused = zeros::<u8>(1 << 50).timed().sync_on(&stream);
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
    // SAFETY: nothing is submitted.
    let refused = unsafe { value(1).timed().async_on(&stream) };
    assert_eq!(refused, Err(Error::needs_host_data("timed")));
}
