//! Limits on submissions in flight.

use std::{
    future::Future,
    ops::ControlFlow::{Break, Continue},
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use cuda_async::{Device, in_order, iterate, policy::SingleStream, prelude::*};

use crate::{kernels::Kernels, on_every_device, polling::iterations_for};

on_every_device! {
    submissions_wait_for_credit
    blocking_run_waits_for_credit
    allocations_wait_for_credit
}

const MANY: u32 = 3000;
/// The number of submissions by which a step may exceed the limit.
const MORE: u64 = 8;

/// A long kernel, and many launches behind it.
fn many_launches_behind_a_long_kernel(
    device: &Device,
) -> impl DeviceOp<Output = Vec<f32>> + use<> + 'static {
    let (kernels, long) =
        (Kernels::load(device), iterations_for(device, Duration::from_millis(400)));
    let spins = kernels.clone();
    zeros::<u32>(32)
        .then(move |out| spins.spin(out, long))
        .then(|_| zeros::<f32>(16))
        .then(move |x| {
            iterate((x, 0), move |(x, done)| {
                kernels.add_scalar(x, 1.0).map(move |x| match done + 1 {
                    MANY => Break(x),
                    done => Continue((x, done)),
                })
            })
        })
        .then(to_host)
}

/// Polls the operation until it ends, and checks that the limit always holds. Returns whether the limit was reached.
fn reaches_the_limit<O: DeviceOp>(
    device: &Device,
    op: O,
    check: impl Fn(<O as DeviceOp>::Output),
) -> bool {
    let stream = device.new_stream().unwrap();
    let mut future = pin!(op.schedule(&SingleStream::from(stream.clone())));
    let mut most = 0;
    let output = loop {
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        most = most.max(stream.in_flight());
        match polled {
            Poll::Ready(output) => break output,
            Poll::Pending => thread::yield_now(),
        }
    };
    check(output.unwrap());
    let limit = device.submissions_in_flight();
    assert!(most <= limit + MORE, "{most}");
    most >= limit
}

/// Tries a few times, because other tests change the time that the long kernel takes.
fn submissions_wait_for_credit(device: &Device) {
    let once = |_| {
        reaches_the_limit(device, many_launches_behind_a_long_kernel(device), |sums| {
            assert_eq!(sums, [MANY as f32; 16]);
        })
    };
    assert!((0..8).any(once));
}

fn blocking_run_waits_for_credit(device: &Device) {
    let stream = device.new_stream().unwrap();
    let (watched, ended) = (stream.clone(), AtomicBool::new(false));
    thread::scope(|scope| {
        let ended = &ended;
        let watch = scope.spawn(move || {
            let mut most = 0;
            while !ended.load(Ordering::Relaxed) {
                most = most.max(watched.in_flight());
                thread::yield_now();
            }
            most
        });
        let sum = many_launches_behind_a_long_kernel(device).sync_on(&stream).unwrap();
        ended.store(true, Ordering::Relaxed);
        assert_eq!(sum, [MANY as f32; 16]);
        assert!(watch.join().unwrap() <= device.submissions_in_flight() + MORE);
    });
}

fn allocations_wait_for_credit(device: &Device) {
    let once = |_| {
        let kernels = Kernels::load(device);
        let long = iterations_for(device, Duration::from_millis(400));
        let slow = zeros::<u32>(32).then(move |out| kernels.spin(out, long));
        let op = slow.then(|_| in_order((0..1000).map(|_| zeros::<u8>(1)))).map(|all| all.len());
        reaches_the_limit(device, op, |len| assert_eq!(len, 1000))
    };
    assert!((0..8).any(once));
}
