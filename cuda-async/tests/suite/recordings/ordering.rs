//! Replays beside other users of the same memory, on several threads.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use cuda_async::{
    Device, DeviceBuffer, Error, Stream,
    cuda_cpu::{CpuOptions, CpuProvider, Timing},
    graph::{Recorded, Recording, record},
    in_order,
    memory::fill,
    prelude::*,
};

use crate::{
    devices,
    kernels::{Floats, Kernels},
    on_every_device,
};

on_every_device! {
    readers_see_whole_replays
    replays_and_live_writers_take_turns
    replay_comes_after_earlier_work_and_before_later_work
}

const LEN: usize = 256;

/// A recording that sets every element to `from`, and then in steps to `from + 4`.
fn counting(kernels: &Kernels, x: Floats, from: f32, device: &Device) -> Recorded<Floats> {
    let steps = (0..4).map(|_| {
        let kernels = kernels.clone();
        move |x| kernels.add_scalar(x, 1.0)
    });
    let [a, b, c, d] = steps.collect::<Vec<_>>().try_into().ok().unwrap();
    record(fill(x, from).then(a).then(b).then(c).then(d), device).unwrap()
}

/// The value of all elements.
fn value(x: &[f32]) -> f32 {
    assert!(x.iter().all(|element| *element == x[0]), "a replay was seen half way: {x:?}");
    x[0]
}

fn readers_see_whole_replays(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let x = zeros::<f32>(LEN).sync_on(&stream).unwrap();
    let (x, recording) = counting(&kernels, x, 10.0, device).into_parts();
    recording.replay(&stream).unwrap();
    let rounds = if devices::link().as_ref() == Some(device) { 5 } else { 100 };
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let stream = device.new_stream().unwrap();
                (0..rounds).for_each(|_| replay_when_there_is_credit(&recording, &stream));
                stream.synchronize().unwrap();
            });
            threads.spawn(|| {
                let stream = device.new_stream().unwrap();
                for _ in 0..rounds {
                    assert_eq!(value(&to_host(&x).sync_on(&stream).unwrap()), 14.0);
                }
            });
        }
    });
}

fn replays_and_live_writers_take_turns(device: &Device) {
    take_turns(device, if devices::link().as_ref() == Some(device) { 5 } else { 60 });
}

/// Streams of this device are delayed at random, so a missing order soon gives a wrong result.
#[test]
fn replays_and_live_writers_take_turns_in_adversarial_timing() {
    let mut options = CpuOptions::default();
    options.timing = Timing::Adversarial { seed: 3, max_delay: Duration::from_micros(300) };
    take_turns(&Device::open(&CpuProvider::new(options), 0).unwrap(), 200);
}

/// Two recordings and a handle write the same memory.
fn take_turns(device: &Device, rounds: u32) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let x = zeros::<f32>(LEN).sync_on(&stream).unwrap();
    let (x, one) = counting(&kernels, x, 10.0, device).into_parts();
    let (x, other) = counting(&kernels, x, 20.0, device).into_parts();
    let x = Mutex::new(fill(x, 30.0).sync_on(&stream).unwrap());
    thread::scope(|threads| {
        for recording in [&one, &other] {
            threads.spawn(move || {
                let stream = device.new_stream().unwrap();
                (0..rounds).for_each(|_| replay_when_there_is_credit(recording, &stream));
                stream.synchronize().unwrap();
            });
        }
        for _ in 0..2 {
            threads.spawn(|| {
                let stream = device.new_stream().unwrap();
                for _ in 0..rounds {
                    let mut x = x.lock().unwrap();
                    let seen = value(&to_host(&*x).sync_on(&stream).unwrap());
                    assert!([14.0, 24.0, 30.0].contains(&seen), "{seen}");
                    // SAFETY: only the library uses the buffer.
                    unsafe { fill(&mut *x, 30.0).async_on(&stream) }.map(drop).unwrap();
                }
            });
        }
    });
}

fn replay_when_there_is_credit(recording: &Recording, stream: &Stream) {
    while let Err(error) = recording.replay(stream) {
        assert!(matches!(error, Error::Busy { .. }), "{error}");
        thread::yield_now();
    }
}

fn replay_comes_after_earlier_work_and_before_later_work(device: &Device) {
    const SLOW: u32 = 30_000;
    let kernels = Kernels::load(device);
    let [a, b, c] = [(); 3].map(|()| device.new_stream().unwrap());
    let x: Arc<DeviceBuffer<u32>> = Arc::new(zeros(64).sync_on(&a).unwrap());
    let out = zeros::<u32>(64).sync_on(&a).unwrap();
    let copied = cuda_async::memory::copy(x.clone(), out).map(|(_, out)| out);
    let (out, recording) = record(copied, device).unwrap().into_parts();
    let mut x = Arc::try_unwrap(x).unwrap();
    for round in 1..4 {
        // SAFETY: only the library uses the buffer.
        x = unsafe { kernels.spin(x, SLOW + round).async_on(&a) }.unwrap();
        recording.replay(&b).unwrap();
        // Overwrites the input behind the replay.
        // SAFETY: only the library uses the buffer.
        x = unsafe { fill(x, 0).async_on(&c) }.unwrap();
        assert_eq!(to_host(&out).sync_on(&c).unwrap(), crate::kernels::spun(64, SLOW + round));
    }
    let both = in_order([fill(x, 1), fill(out, 2)]).sync_on(&a).unwrap();
    recording.replay(&b).unwrap();
    assert_eq!(to_host(&both[1]).sync_on(&a).unwrap(), [1; 64]);
}
