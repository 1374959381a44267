//! Futures that are dropped, forgotten or aborted, and closures that panic.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll, Waker},
};

use cuda_async::{Device, Error, policy::SingleStream, prelude::*, value};
use cuda_core::Provider;
use futures::FutureExt;

use crate::{
    kernels::{Kernels, spun},
    link::LinkProvider,
    on_every_device,
};

on_every_device! {
    stream_works_after_a_dropped_future
    borrowed_buffer_works_after_a_forgotten_future
    stream_works_after_a_panic_in_a_closure
    cancelled_poller_passes_shared_work_to_another_clone
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    future.poll_unpin(&mut Context::from_waker(Waker::noop()))
}

fn stream_works_after_a_dropped_future(device: &Device) {
    let kernels = Kernels::load(device);
    let policy = SingleStream::new(device).unwrap();
    for _ in 0..10 {
        let op = zeros::<u32>(64).then(|out| kernels.spin(out, 3000)).then(to_host);
        let mut future = op.schedule(&policy);
        drop(poll_once(&mut future));
        drop(future);
        let next =
            zeros::<u32>(64).then(|out| kernels.spin(out, 7)).then(to_host).schedule(&policy);
        assert_eq!(futures::executor::block_on(next).unwrap(), spun(64, 7));
    }
}

fn borrowed_buffer_works_after_a_forgotten_future(device: &Device) {
    let kernels = Kernels::load(device);
    let policy = SingleStream::new(device).unwrap();
    let stream = device.new_stream().unwrap();
    let x = h2d(vec![3.0f32; 5000]).sync_on(&stream).unwrap();
    let mut future = kernels.add(&x, &x).then(to_host).schedule(&policy);
    drop(poll_once(&mut future));
    std::mem::forget(future);
    let x = kernels.scale(x, 2.0).sync_on(&stream).unwrap();
    assert_eq!(to_host(x).sync_on(&stream).unwrap(), [6.0; 5000]);
}

fn stream_works_after_a_panic_in_a_closure(device: &Device) {
    let stream = device.new_stream().unwrap();
    let panicking =
        h2d(vec![1u8; 100]).then(|_| -> Op<cuda_async::ops::Value<u8>> { panic!("on purpose") });
    let caught = catch_unwind(AssertUnwindSafe(|| panicking.sync_on(&stream)));
    assert!(caught.is_err());
    assert_eq!(h2d(vec![1u8; 100]).then(to_host).sync_on(&stream).unwrap(), [1; 100]);
    let shared = value(1).map(|_| -> u8 { panic!("on purpose") }).shared();
    let caught = catch_unwind(AssertUnwindSafe(|| shared.clone().sync_on(&stream)));
    assert!(caught.is_err());
    let error = shared.sync_on(&stream).unwrap_err();
    assert!(matches!(error, Error::Panicked { .. }), "{error}");
}

fn cancelled_poller_passes_shared_work_to_another_clone(device: &Device) {
    let kernels = Kernels::load(device);
    let policy = SingleStream::new(device).unwrap();
    for _ in 0..20 {
        let op = zeros::<u32>(64).then(|out| kernels.spin(out, 3000)).then(to_host).shared();
        let mut first = op.clone().schedule(&policy);
        drop(poll_once(&mut first));
        let second = std::thread::scope(|threads| {
            let second =
                threads.spawn(|| futures::executor::block_on(op.clone().schedule(&policy)));
            std::thread::yield_now();
            drop(first);
            second.join().unwrap()
        });
        assert_eq!(*second.unwrap(), spun(64, 3000));
    }
}

/// On a device of its own: all memory of cancelled operations is freed.
fn memory_is_freed(provider: &dyn Provider) {
    let device = Device::open(provider, 0).unwrap();
    let kernels = Kernels::load(&device);
    let before = device.memory().unwrap().used;
    let policy = SingleStream::new(&device).unwrap();
    for turn in 0..20 {
        let op = zeros::<u32>(2000).then(|out| kernels.spin(out, 500)).then(to_host);
        let mut future = op.schedule(&policy);
        if turn % 2 == 0 {
            drop(poll_once(&mut future));
        }
        drop(future);
    }
    device.synchronize().unwrap();
    // Dropped buffers are freed on their stream, after its earlier work.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while device.memory().unwrap().used > before && std::time::Instant::now() < until {
        device.synchronize().unwrap();
        std::thread::yield_now();
    }
    assert_eq!(device.memory().unwrap().used, before);
}

#[test]
fn memory_is_freed_on_the_cpu_device() {
    memory_is_freed(&cuda_cpu::CpuProvider::default());
}

#[test]
fn memory_is_freed_behind_a_link() {
    memory_is_freed(&LinkProvider::new(std::time::Duration::from_micros(200)));
}

#[cfg(feature = "cuda")]
#[test]
fn memory_is_freed_on_a_gpu() {
    if crate::devices::cuda().is_some() {
        memory_is_freed(&cuda_driver::CudaProvider::new());
    }
}
