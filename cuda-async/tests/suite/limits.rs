//! What can grow has a limit.

use std::{
    future::{Future, IntoFuture},
    ops::ControlFlow::{Break, Continue},
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use cuda_async::{Device, SingleStream, in_order, iterate, prelude::*};
use cuda_core::MAX_IN_FLIGHT;
use futures::executor::block_on;

use crate::{kernels::Kernels, on_every_device, polling::iterations_for};

on_every_device! {
    submissions_of_a_stream_wait_for_room
    a_thread_that_blocks_waits_for_room_too
    allocations_wait_for_room
}

const MANY: u32 = 3000;
/// A step may submit a little more than one thing.
const MOST: u64 = MAX_IN_FLIGHT + 8;

/// Something long, and behind it many launches.
fn many_behind_a_long_one(device: &Device) -> impl DeviceOp<Output = Vec<f32>> + use<> + 'static {
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

fn submissions_of_a_stream_wait_for_room(device: &Device) {
    let stream = device.new_stream().unwrap();
    let policy = SingleStream::from(stream.clone());
    let mut future = pin!(many_behind_a_long_one(device).schedule(&policy));
    for _ in 0..MANY {
        assert!(stream.in_flight() <= MOST, "{}", stream.in_flight());
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            panic!("the long one is not over");
        }
        if stream.in_flight() >= MAX_IN_FLIGHT {
            break;
        }
    }
    assert!(stream.in_flight() >= MAX_IN_FLIGHT, "{}", stream.in_flight());
    assert_eq!(block_on(future).unwrap(), [MANY as f32; 16]);
}

fn a_thread_that_blocks_waits_for_room_too(device: &Device) {
    let stream = device.new_stream().unwrap();
    let (watched, ended) = (stream.clone(), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        let ended = &ended;
        let watch = scope.spawn(move || {
            let mut most = 0;
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                most = most.max(watched.in_flight());
                std::thread::yield_now();
            }
            most
        });
        let sum = many_behind_a_long_one(device).sync_on(&stream).unwrap();
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(sum, [MANY as f32; 16]);
        assert!(watch.join().unwrap() <= MOST);
    });
}

fn allocations_wait_for_room(device: &Device) {
    let stream = device.new_stream().unwrap();
    let (kernels, long) =
        (Kernels::load(device), iterations_for(device, Duration::from_millis(400)));
    let slow = zeros::<u32>(32).then(move |out| kernels.spin(out, long));
    let op = slow.then(|_| in_order((0..1000).map(|_| zeros::<u8>(1)))).map(|all| all.len());
    let policy = SingleStream::from(stream.clone());
    let mut future = pin!(op.schedule(&policy).into_future());
    for _ in 0..100 {
        let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(stream.in_flight() <= MOST, "{}", stream.in_flight());
    }
    assert_eq!(block_on(future).unwrap(), 1000);
}
