//! `wait_for_memory`, on devices with little memory.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cuda_async::{
    Device, Error,
    cuda_cpu::{CpuOptions, CpuProvider},
    policy::SingleStream,
    prelude::*,
    script, value,
};
use futures::executor::block_on;

use crate::{
    kernels::Kernels,
    polling::{dropped_at_every_poll, memory_is_freed, polled_again},
    script::nap,
};

const MIB: usize = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// Two mebibytes.
fn small_device() -> Device {
    let mut options = CpuOptions::default();
    options.memory = Some(2 * MIB as u64);
    Device::open(&CpuProvider::new(options), 0).unwrap()
}

#[test]
fn allocation_waits_until_memory_is_dropped() {
    let device = small_device();
    let (stream, policy) = (device.new_stream().unwrap(), SingleStream::new(&device).unwrap());
    for sync in [true, false] {
        let held = zeros::<u8>(3 * MIB / 2).sync_on(&stream).unwrap();
        let refused = zeros::<u8>(MIB).sync_on(&stream).map(drop);
        assert!(matches!(refused, Err(Error::OutOfMemory { .. })));
        let dropped = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(held);
        });
        let op = zip!(zeros::<u8>(MIB), h2d(vec![7u8; MIB / 2])).wait_for_memory(MINUTE);
        let op = op.then(|(a, b)| (value(a.len()), to_host(b)));
        let (a, b) =
            if sync { op.sync_on(&stream) } else { block_on(op.schedule(&policy)) }.unwrap();
        assert!(a == MIB && b == vec![7; MIB / 2]);
        dropped.join().unwrap();
    }
}

#[test]
fn allocations_that_do_not_fit_together_all_succeed() {
    let device = small_device();
    let kernels = Kernels::load(&device);
    let policy = Arc::new(SingleStream::new(&device).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..40u16)
            .map(|task| {
                let (kernels, policy) = (kernels.clone(), policy.clone());
                tokio::spawn(async move {
                    // 800 KiB each, so two fit at a time.
                    let op = h2d(vec![f32::from(task); 200 << 10])
                        .then(move |x| kernels.add_scalar(x, 1.0))
                        .then(to_host)
                        .map(|host| host[host.len() - 1])
                        .wait_for_memory(MINUTE);
                    op.schedule(&*policy).await
                })
            })
            .collect();
        for (task, handle) in (0..40u16).zip(tasks) {
            assert_eq!(handle.await.unwrap(), Ok(f32::from(task) + 1.0));
        }
    });
    memory_is_freed(&device, 0);
}

#[test]
fn mutual_waits_for_memory_end() {
    let device = small_device();
    let policy = SingleStream::new(&device).unwrap();
    let patience = Duration::from_millis(60);
    let start = Instant::now();
    let greedy = || {
        let op = script(async |cx| {
            let first = cx.run(zeros::<u8>(MIB * 9 / 10)).await?;
            nap().await; // until the other one has its first
            let second = cx.run(zeros::<u8>(MIB * 9 / 10)).await?;
            Ok(first.len() + second.len())
        });
        op.wait_for_memory(patience).schedule(&policy)
    };
    let (a, b) = block_on(async { futures::join!(greedy(), greedy()) });
    assert!(start.elapsed() >= patience);
    for end in [&a, &b] {
        assert!(matches!(end, Ok(_) | Err(Error::OutOfMemory { .. })), "{end:?}");
    }
    assert!(a.is_err() || b.is_err());
}

#[test]
fn allocation_larger_than_the_device_fails_at_once() {
    let device = small_device();
    let stream = device.new_stream().unwrap();
    let never = zeros::<u8>(3 * MIB).wait_for_memory(MINUTE).sync_on(&stream).map(drop);
    assert!(matches!(never, Err(Error::OutOfMemory { .. })));
    let held = zeros::<u8>(3 * MIB / 2).sync_on(&stream).unwrap();
    // SAFETY: nothing is submitted.
    let now = unsafe { zeros::<u8>(MIB).wait_for_memory(MINUTE).async_on(&stream) }.map(drop);
    assert!(matches!(now, Err(Error::OutOfMemory { .. })));
    drop(held);
}

#[test]
fn wait_for_memory_ends_once_and_leaves_no_state() {
    let device = small_device();
    let kernels = Kernels::load(&device);
    let before = device.memory().unwrap().used;
    let (stream, policy) = (device.new_stream().unwrap(), SingleStream::new(&device).unwrap());
    let soon = Duration::from_millis(5);
    let op = polled_again(zeros::<u8>(4).wait_for_memory(soon));
    assert_eq!(op.sync_on(&stream), Ok(Error::AlreadyEnded));
    let held = zeros::<u8>(3 * MIB / 2).sync_on(&stream).unwrap();
    let op = polled_again(zeros::<u8>(MIB).wait_for_memory(soon));
    assert_eq!(op.sync_on(&stream), Ok(Error::AlreadyEnded));
    let mut held = Some(held);
    dropped_at_every_poll(|| {
        let op = zeros::<u32>(64).then(|x| kernels.spin(x, 2000)).then(|_| zeros::<u8>(MIB));
        op.wait_for_memory(Duration::from_millis(20)).schedule(&policy)
    });
    held.take();
    memory_is_freed(&device, before);
}
