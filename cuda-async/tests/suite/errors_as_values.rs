//! `settled`, `map_err`, `or_else`, `unwrap_arc`.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use cuda_async::{
    Device, Error, Function, LaunchConfig, Stream, launch, ops::Value, policy::SingleStream,
    prelude::*, value,
};
use futures::executor::block_on;

use crate::{
    kernels::{Kernels, spun},
    on_every_device,
    polling::{dropped_at_every_poll, memory_is_freed, own_devices, panics_in_second_poll},
};

on_every_device! {
    settled_waits_for_the_device
    settled_waits_for_work_submitted_before_an_error
    settled_waits_for_the_other_branches_of_a_failed_fork
    settled_does_not_wait_for_others
    async_on_never_waits
    or_else_handles_an_allocation_that_is_too_large
    map_err_changes_the_error_only
    unwrap_arc_needs_the_last_owner
    panic_in_a_closure_ends_the_operation
}

const SLOW: u32 = 30_000;

type Never = Op<Value<u8>>;

fn failing<T: Send>() -> impl FnOnce(T) -> Result<Never, Error> + Send {
    |_| Err(Error::OutOfHostMemory { requested: 7 })
}

fn is_idle(stream: &Stream) -> bool {
    stream.in_flight() == 0
}

fn settled_waits_for_the_device(device: &Device) {
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let slow = || zeros::<u32>(64).then(|out| kernels.spin(out, SLOW)).settled();
    let (idle, buffer) = slow().map(|out| (is_idle(&stream), out)).sync_on(&stream).unwrap();
    assert!(idle);
    assert_eq!(to_host(buffer).sync_on(&stream).unwrap(), spun(64, SLOW));
    let policy = SingleStream::from(stream.clone());
    assert!(block_on(slow().map(|_| is_idle(&stream)).schedule(&policy)).unwrap());
}

fn settled_waits_for_work_submitted_before_an_error(device: &Device) {
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let op = || zeros::<u32>(64).then(|out| kernels.spin(out, SLOW)).then(failing()).settled();
    let lost = Err(Error::OutOfHostMemory { requested: 7 });
    assert_eq!(op().sync_on(&stream), lost);
    assert!(is_idle(&stream));
    let policy = SingleStream::from(stream.clone());
    assert_eq!(block_on(op().schedule(&policy)), lost);
    assert!(is_idle(&stream));
}

fn settled_waits_for_the_other_branches_of_a_failed_fork(device: &Device) {
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let slow = || zeros::<u32>(64).then(|out| kernels.spin(out, SLOW)).map(drop).boxed();
    let fails = || value(()).then(failing()).map(drop).boxed();
    for branches in [vec![slow(), fails()], vec![fails(), slow()], vec![slow(), slow(), fails()]] {
        let out = Arc::new(std::sync::Mutex::new(None));
        let seen = out.clone();
        let branches = value(()).then(move |()| branches).settled().or_else(move |error| {
            *seen.lock().unwrap() = Some(error);
            value(vec![])
        });
        branches
            .then(|_| value(is_idle(&stream)))
            .sync_on(&stream)
            .map(|idle| assert!(idle))
            .unwrap();
        assert_eq!(out.lock().unwrap().take(), Some(Error::OutOfHostMemory { requested: 7 }));
    }
}

fn settled_does_not_wait_for_others(device: &Device) {
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let slow = zeros::<u32>(64).then(|out| kernels.spin(out, SLOW * 10));
    let late = slow.schedule(&SingleStream::from(stream.clone()));
    let policy = SingleStream::from(stream.clone());
    assert_eq!(block_on(value(3).settled().schedule(&policy)).unwrap(), 3);
    block_on(late).unwrap();
}

fn async_on_never_waits(device: &Device) {
    let stream = device.new_stream().unwrap();
    let fallback = |_| -> Op<Value<u8>> { panic!("must not run") };
    // SAFETY: nothing is submitted.
    unsafe {
        assert_eq!(value(1u8).settled().async_on(&stream), Err(Error::needs_host_data("settled")));
        assert_eq!(
            value(1u8).or_else(fallback).async_on(&stream),
            Err(Error::needs_host_data("or_else"))
        );
        assert_eq!(value(1u8).map_err(|e| e).async_on(&stream), Ok(1));
    }
}

fn or_else_handles_an_allocation_that_is_too_large(device: &Device) {
    let stream = device.new_stream().unwrap();
    let op = || {
        zeros::<u8>(1 << 50).or_else(|error| {
            assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
            zeros::<u8>(8)
        })
    };
    assert_eq!(op().then(to_host).sync_on(&stream).unwrap(), [0; 8]);
    assert_eq!(block_on(op().schedule(&SingleStream::from(stream))).unwrap().len(), 8);
}

fn map_err_changes_the_error_only(device: &Device) {
    let stream = device.new_stream().unwrap();
    let op = |bytes| zeros::<u8>(bytes).map_err(|_| Error::OutsideScript).then(to_host);
    assert_eq!(op(2).sync_on(&stream), Ok(vec![0; 2]));
    assert_eq!(op(1 << 50).sync_on(&stream), Err(Error::OutsideScript));
}

fn unwrap_arc_needs_the_last_owner(device: &Device) {
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let shared = h2d(vec![1.0f32; 500]).shared();
    let sum = shared.clone().then(|x| kernels.add(x.clone(), x));
    let refused = shared.clone().unwrap_arc().sync_on(&stream).map(drop);
    assert_eq!(refused, Err(Error::StillShared { others: 1 }));
    let sum = sum.sync_on(&stream).unwrap();
    let alone = shared.unwrap_arc().then(|x| kernels.scale(x, 3.0));
    let (sum, alone) = zip!(to_host(sum), alone.then(to_host)).sync_on(&stream).unwrap();
    assert_eq!((sum, alone), (vec![2.0; 500], vec![3.0; 500]));
}

fn panic_in_a_closure_ends_the_operation(device: &Device) {
    let stream = device.new_stream().unwrap();
    let op = zeros::<u8>(1 << 50)
        .or_else(|_| -> Op<cuda_async::memory::Allocate<u8>> { panic!("on purpose") });
    assert!(catch_unwind(AssertUnwindSafe(|| op.sync_on(&stream))).is_err());
    let op = zeros::<u8>(1 << 50).map_err(|_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(|| op.sync_on(&stream))).is_err());
    assert_eq!(zeros::<u8>(3).then(to_host).sync_on(&stream).unwrap(), [0; 3]);
}

#[test]
fn or_else_does_not_hide_a_panic() {
    let mut op = panics_in_second_poll().or_else(|_| value(2)).into_future();
    assert!(catch_unwind(AssertUnwindSafe(|| block_on(&mut op))).is_err());
    assert_eq!(block_on(&mut op), Err(Error::AlreadyEnded));
}

fn trap(kernel: &Function) -> impl DeviceOp<Output = DeviceBuffer<u32>> + use<> {
    let kernel = kernel.clone();
    zeros::<u32>(64).then(move |x| {
        // SAFETY: writes x, of 64 elements, or traps.
        unsafe { launch(&kernel, LaunchConfig::new(1, 64), (x, 5u32, 64u32)) }
    })
}

#[test]
fn or_else_handles_later_device_errors() {
    for device in own_devices() {
        let module = device.load_ptx_blocking(include_str!("../../../kernels/faults.ptx")).unwrap();
        let kernel = module.function("trap_at").unwrap();
        let stream = device.new_stream().unwrap();
        let saved = || {
            trap(&kernel).or_else(|error| {
                assert!(matches!(error, Error::Fault(_)), "{error:?}");
                device.reset().unwrap();
                h2d(vec![7u32; 2])
            })
        };
        assert_eq!(saved().then(to_host).sync_on(&stream).unwrap(), [7; 2]);
        let policy = SingleStream::from(stream.clone());
        assert_eq!(block_on(saved().then(to_host).schedule(&policy)).unwrap(), [7; 2]);
    }
}

#[test]
fn operations_dropped_at_any_poll_leave_no_memory() {
    for device in own_devices() {
        let kernels = Kernels::load(&device);
        let before = device.memory().unwrap().used;
        let policy = SingleStream::new(&device).unwrap();
        dropped_at_every_poll(|| {
            let slow = || zeros::<u32>(64).then(|out| kernels.spin(out, 2000));
            let failed = slow().then(|_| zeros::<u32>(1 << 50)).settled().or_else(|_| zeros(64));
            failed.then(|x| kernels.spin(x, 2000)).then(to_host).settled().schedule(&policy)
        });
        memory_is_freed(&device, before);
    }
}
