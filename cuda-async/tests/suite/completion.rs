//! Futures wait for their own submissions, never inside a poll, and also if the device refuses a report.

use std::{
    sync::{Mutex, atomic::Ordering, mpsc::channel},
    task::{Context, Waker},
    time::{Duration, Instant},
};

use cuda_async::{
    Device, Error, LaunchConfig, SchedulingPolicy, cuda_cpu::CpuProvider, launch, memory::fill,
    policy::SingleStream, prelude::*,
};
use futures::{FutureExt, executor::block_on, future::join_all};

use crate::{
    kernels::Kernels,
    link::LinkProvider,
    on_every_device,
    polling::{idle_blocks, iterations_for, own_devices},
    wakes::in_time,
    wrapper::{Logged, WrapperProvider},
};

on_every_device! {
    future_does_not_wait_for_later_work_on_its_stream
}

/// Enqueues a kernel that runs for about this time.
fn long_kernel(device: &Device, policy: &SingleStream, time: Duration) {
    let (kernels, long) = (Kernels::load(device), iterations_for(device, time));
    let op = zeros::<u32>(1).then(|out| kernels.spin(out, long));
    // SAFETY: the output is dropped.
    drop(unsafe { op.async_on(&policy.place().unwrap()) }.unwrap());
}

fn future_does_not_wait_for_later_work_on_its_stream(device: &Device) {
    let policy = SingleStream::new(device).unwrap();
    let stream = policy.place().unwrap();
    let kernels = Kernels::load(device);
    let scaled = |x| kernels.scale(x, 3.0);
    // Neither needs host memory, which may have to be pinned first: both are submitted before the long kernel.
    let first = zeros::<f32>(8).then(scaled).schedule(&policy);
    let second = zeros::<f32>(8).then(scaled).then(scaled).schedule(&policy);
    long_kernel(device, &policy, Duration::from_millis(500));
    assert!(block_on(first).is_ok());
    let second = block_on(second).unwrap();
    assert!(!stream.query().unwrap(), "it waited for the long kernel");
    assert_eq!(block_on(to_host(second).schedule(&policy)), Ok(vec![0.0; 8]));
}

/// A device that reports only after a want reports everything that the stream has by then. So the want for a future
/// that was scheduled and not polled comes before the work of another one.
#[test]
fn report_of_scheduled_work_is_requested_before_later_work() {
    let provider = WrapperProvider::new(LinkProvider::new(Duration::from_millis(300)));
    let device = provider.open_device();
    let policy = SingleStream::new(&device).unwrap();
    let first = zeros::<u8>(8).then(|x| fill(x, 1)).schedule(&policy);
    let last = policy.place().unwrap().submitted();
    assert_eq!(last, 3, "an allocation and two fills");
    let second = zeros::<u8>(8).schedule(&policy);
    let log = provider.watched.log();
    let submitted: Vec<_> =
        log.iter().filter(|logged| matches!(logged, Logged::Submitted(_))).collect();
    let [.., Logged::Submitted(last), Logged::Submitted(next)] = submitted[..] else {
        panic!("{log:?}")
    };
    let at = |wanted| log.iter().position(|logged| *logged == wanted);
    let want = at(Logged::Wanted(*last)).expect("the first future's last submission is wanted");
    assert!(at(Logged::Submitted(*last)).unwrap() < want);
    assert!(want < at(Logged::Submitted(*next)).unwrap());
    block_on(async { futures::join!(first, second) }).0.unwrap();
}

#[test]
fn future_does_not_report_failures_of_other_work_on_its_stream() {
    for device in own_devices() {
        let policy = SingleStream::new(&device).unwrap();
        let stream = policy.place().unwrap();
        let trap = device.load_ptx_blocking(include_str!("../../../kernels/faults.ptx")).unwrap();
        let trap = trap.function("trap_at").unwrap();
        let lost = zeros::<u32>(64).sync_on(&stream).unwrap();
        // Work that needs no new host memory is submitted at once.
        idle_blocks(&device, 4, 8);
        let before = h2d([1u8; 8]).then(|x| zip!(to_host(x), zeros::<u8>(1))).schedule(&policy);
        let copied = h2d([1u8; 8]).schedule(&policy);
        // SAFETY: writes `lost`, of 64 elements, or traps.
        let op = unsafe { launch(&trap, LaunchConfig::new(1, 64), (lost, 5u32, 64u32)) };
        let faulting = op.schedule(&policy);
        // SAFETY: nothing is submitted.
        let _ = stream.synchronize();
        assert!(block_on(copied).is_ok());
        let fault = block_on(faulting).map(drop).unwrap_err();
        assert!(matches!(fault, Error::Fault(_)), "{fault}");
        // Its download may have been submitted behind the fault.
        if let Err(error) = block_on(before) {
            assert!(error.is_sticky(), "{error}");
        }
        device.reset().unwrap();
        // Work that is skipped after the reset, between submissions of another operation.
        let lost = zeros::<u32>(64).sync_on(&stream).unwrap();
        // SAFETY: writes `lost`, of 64 elements, or traps.
        let op = unsafe { launch(&trap, LaunchConfig::new(1, 64), (lost, 5u32, 64u32)) };
        // SAFETY: only the library uses it.
        let lost = unsafe { op.async_on(&stream) }.unwrap();
        let _ = stream.synchronize();
        device.reset().unwrap();
        idle_blocks(&device, 4, 8);
        let first = h2d([1u8; 8]).schedule(&policy);
        let skipped = to_host(&lost).schedule(&policy);
        let second = h2d([2u8; 8]).then(to_host).schedule(&policy);
        assert!(matches!(block_on(skipped), Err(Error::ContentsLost { .. })));
        assert!(block_on(first).is_ok());
        assert_eq!(block_on(second), Ok(vec![2; 8]));
    }
}

/// An operation that was in flight all the time reports none of them.
#[test]
fn many_failures_on_a_stream_are_not_reported_by_an_earlier_operation() {
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    let policy = SingleStream::new(&device).unwrap();
    let stream = policy.place().unwrap();
    let trap = device.load_ptx_blocking(include_str!("../../../kernels/faults.ptx")).unwrap();
    let trap = trap.function("trap_at").unwrap();
    let lost = zeros::<u32>(64).sync_on(&stream).unwrap();
    // SAFETY: writes `lost`, of 64 elements, or traps.
    let op = unsafe { launch(&trap, LaunchConfig::new(1, 64), (lost, 5u32, 64u32)) };
    // SAFETY: only the library uses it.
    let lost = unsafe { op.async_on(&stream) }.unwrap();
    let _ = stream.synchronize();
    device.reset().unwrap();
    let fails = || to_host(&lost).sync_on(&stream).unwrap_err();
    let works = || zeros::<u8>(8).then(to_host).sync_on(&stream).unwrap();
    fails();
    let early = h2d([1u8; 8]).then(to_host).schedule(&policy);
    for _ in 0..100 {
        fails();
        works();
    }
    assert_eq!(block_on(early), Ok(vec![1; 8]));
}

#[test]
fn poll_does_not_wait_while_another_thread_resets() {
    for device in own_devices() {
        let (busy, other) =
            (SingleStream::new(&device).unwrap(), SingleStream::new(&device).unwrap());
        drop(zeros::<u8>(8).then(to_host).sync_on(&other.place().unwrap()));
        long_kernel(&device, &busy, Duration::from_millis(300));
        let (reset, longest) = std::thread::scope(|scope| {
            let reset = scope.spawn(|| {
                let start = Instant::now();
                device.reset().unwrap();
                start.elapsed()
            });
            let mut longest = Duration::ZERO;
            while !reset.is_finished() {
                let start = Instant::now();
                let mut future = zeros::<u8>(8).then(to_host).schedule(&other);
                let polled = future.poll_unpin(&mut Context::from_waker(Waker::noop()));
                drop((polled, future));
                longest = longest.max(start.elapsed());
                std::thread::sleep(Duration::from_micros(200));
            }
            (reset.join().unwrap(), longest)
        });
        println!("reset {reset:?}, longest poll {longest:?}");
        assert!(reset > Duration::from_millis(60), "{reset:?}");
        assert!(longest < reset / 2, "{longest:?} of {reset:?}");
    }
}

/// The operation whose request is refused may fail. No other one hangs.
#[test]
fn refused_report_does_not_prevent_other_wakes() {
    let link = LinkProvider::new(Duration::from_millis(2));
    for provider in [WrapperProvider::new(CpuProvider::default()), WrapperProvider::new(link)] {
        let failed = in_time(move || {
            let device = provider.open_device();
            let mut failed = 0;
            for refused in 1..6 {
                let policies = [(); 2].map(|()| SingleStream::new(&device).unwrap());
                policies.iter().for_each(|policy| {
                    long_kernel(&device, policy, Duration::from_millis(20));
                });
                provider.watched.refused_wants.store(refused, Ordering::SeqCst);
                let waiting = policies.iter().cycle().take(12);
                let waiting =
                    waiting.map(|policy| h2d(vec![7u8; 64]).then(to_host).schedule(policy));
                for ended in block_on(join_all(waiting)) {
                    match ended {
                        Ok(bytes) => assert_eq!(bytes, [7; 64]),
                        Err(error) => {
                            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
                            failed += 1;
                        }
                    }
                }
                provider.watched.refused_wants.store(0, Ordering::SeqCst);
                let later = h2d([1u8; 8]).then(to_host).schedule(&policies[0]);
                assert_eq!(block_on(later), Ok(vec![1; 8]));
            }
            failed
        });
        assert!(failed <= 15, "{failed}");
        println!("{failed} operations failed");
    }
}

/// Each report gives dropped resources back. If those that are still in use requested reports again, each report would
/// cause as many others as there are such resources, and these as many again.
#[test]
fn dropped_modules_in_use_request_one_report_each() {
    const MODULES: usize = 50;
    in_time(|| {
        let provider = WrapperProvider::new(CpuProvider::default());
        let device = provider.open_device();
        let load = |ptx: &str| device.load_ptx_blocking(ptx).unwrap();
        let hello =
            load(include_str!("../../../kernels/print.ptx")).function("print_hello").unwrap();
        let (busy, free) = (device.new_stream().unwrap(), device.new_stream().unwrap());
        // The kernel runs until its output function returns.
        let ((begun, has_begun), (end, ended)) = (channel(), channel::<()>());
        let ended = Mutex::new(ended);
        device.set_output(move |_| {
            begun.send(()).unwrap();
            _ = ended.lock().unwrap().recv();
        });
        // SAFETY: uses no memory.
        unsafe { launch(&hello, LaunchConfig::new(1, 1), ()).async_on(&busy) }.unwrap();
        has_begun.recv().unwrap();
        let log = provider.watched.log();
        let Some(Logged::Submitted(running)) = log.last() else { panic!("{log:?}") };
        for _ in 0..MODULES {
            drop(load(include_str!("../../../kernels/vecadd.ptx")));
        }
        for _ in 0..100 {
            block_on(zeros::<u8>(8).then(to_host).schedule(&SingleStream::from(free.clone())))
                .unwrap();
        }
        let wanted = provider.watched.log();
        let wanted = wanted.iter().filter(|logged| **logged == Logged::Wanted(*running)).count();
        assert!(wanted <= MODULES, "{wanted} reports of one submission were requested");
        drop(end);
        busy.synchronize().unwrap();
        // Its report unloads them.
        while provider.watched.unloads.load(Ordering::SeqCst) < MODULES {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
