//! `wait_for_memory`, on devices with little memory.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{Sender, channel},
    },
    time::{Duration, Instant},
};

use cuda_async::{
    Device, Error, LaunchConfig, Stream,
    cuda_cpu::{CpuOptions, CpuProvider},
    launch,
    memory::uninitialized,
    policy::SingleStream,
    prelude::*,
    script, value,
};
use cuda_core::{Ticket, protocol::StreamId};
use futures::executor::block_on;

use crate::{
    kernels::Kernels,
    polling::{dropped_at_every_poll, memory_is_freed},
    script::nap,
    wrapper::{Watched, WrapperProvider},
};

const MIB: usize = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// Two mebibytes.
fn small_device() -> Device {
    let mut options = CpuOptions::default();
    options.memory = Some(2 * MIB as u64);
    Device::open(&CpuProvider::new(options), 0).unwrap()
}

/// A device whose stream `held` waits for the sender.
fn with_held_stream() -> (Device, Arc<Watched>, Stream, Sender<()>) {
    const PRINT: &str = include_str!("../../../kernels/print.ptx");
    let provider = WrapperProvider::new(CpuProvider::default());
    let device = provider.open_device();
    let held = device.new_stream().unwrap();
    let (open, gate) = channel();
    let gate = Mutex::new(gate);
    device.set_output(move |_| _ = gate.lock().unwrap().recv());
    let print = device.load_ptx_blocking(PRINT).unwrap().function("print_hello").unwrap();
    // SAFETY: uses no memory.
    unsafe { launch(&print, LaunchConfig::new(1, 1), ()).async_on(&held) }.unwrap();
    (device, provider.watched, held, open)
}

/// The last free comes after the work on `stream`.
fn frees_come_after(watched: &Watched, stream: &Stream, count: usize) -> bool {
    let frees = watched.frees();
    let is_behind = |(on, after): &(StreamId, Vec<Ticket>)| {
        *on == stream.id() || after.iter().any(|ticket| ticket.stream == stream.id())
    };
    frees.len() >= count && frees[frees.len() - count..].iter().all(is_behind)
}

#[test]
fn free_of_an_empty_buffer_comes_after_its_last_use() {
    let (device, watched, held, open) = with_held_stream();
    let (kernels, stream) = (Kernels::load(&device), device.new_stream().unwrap());
    let empty = zeros::<u32>(0).sync_on(&stream).unwrap();
    // SAFETY: the output is dropped.
    unsafe { kernels.spin(empty, 1).map(drop).async_on(&held) }.unwrap();
    drop(zeros::<u8>(9).sync_on(&stream).unwrap());
    assert!(frees_come_after(&watched, &held, 1), "{:?}", watched.frees());
    open.send(()).unwrap();
}

/// The memory of a graph is freed after its launches.
#[test]
fn free_of_an_empty_buffer_of_a_graph_comes_after_its_launches() {
    let (device, watched, held, open) = with_held_stream();
    let (kernels, stream) = (Kernels::load(&device), device.new_stream().unwrap());
    for prepares in [false, true] {
        let op = zeros::<u32>(0).then(|x| kernels.spin(x, 1)).map(drop);
        let graph = op.graph_on(&stream).unwrap();
        if prepares {
            graph.upload().unwrap();
        }
        // SAFETY: the graph has no output.
        unsafe { graph.launch().map(drop).async_on(&held) }.unwrap();
        drop(graph);
        drop(zeros::<u8>(9).sync_on(&stream).unwrap());
        assert!(frees_come_after(&watched, &held, 1), "{:?}", watched.frees());
    }
    open.send(()).unwrap();
}

/// The memory of an empty buffer and that of one byte are never taken for each other.
#[test]
fn empty_buffer_and_byte_reuse_no_memory_of_each_other() {
    let provider = WrapperProvider::new(CpuProvider::default());
    let mut capabilities = Device::open(&CpuProvider::default(), 0).unwrap().capabilities().clone();
    capabilities.reuses_memory = true;
    provider.watched.capabilities.set(capabilities).unwrap();
    let device = provider.open_device();
    let stream = device.new_stream().unwrap();
    let of = |len| {
        let buffer = uninitialized::<u8>(len).sync_on(&stream).unwrap();
        buffer.as_slice().region().alloc
    };
    assert_ne!(of(1), of(0));
    assert_ne!(of(0), of(1));
    assert_eq!(of(7), of(7));
    assert_eq!(device.memory().unwrap().used, 0);
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
fn wait_for_memory_leaves_no_state() {
    let device = small_device();
    let kernels = Kernels::load(&device);
    let before = device.memory().unwrap().used;
    let (stream, policy) = (device.new_stream().unwrap(), SingleStream::new(&device).unwrap());
    let held = zeros::<u8>(3 * MIB / 2).sync_on(&stream).unwrap();
    let mut held = Some(held);
    dropped_at_every_poll(|| {
        let op = zeros::<u32>(64).then(|x| kernels.spin(x, 2000)).then(|_| zeros::<u8>(MIB));
        op.wait_for_memory(Duration::from_millis(20)).schedule(&policy)
    });
    held.take();
    memory_is_freed(&device, before);
}
