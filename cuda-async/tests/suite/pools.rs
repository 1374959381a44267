//! Memory pools: where memory comes from, what pools count, limits, and memory that is found again.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use cuda_tensor::{Tensor, TensorOps};

use cuda_async::{
    Device, DeviceBuffer, Error,
    cuda_cpu::{CpuOptions, CpuProvider},
    defer,
    graph::record,
    in_order, join_all,
    memory::{DeviceScalar, MemoryPool, PoolOptions, copy, fill},
    prelude::*,
    uninitialized,
};
use futures::executor::block_on;

use crate::{
    devices::own_lease, kernels::Kernels, on_every_device, polling::own_devices,
    wrapper::WrapperProvider,
};

on_every_device! {
    operations_take_all_memory_from_their_pool
    branches_and_closures_inherit_the_pool
    inner_pool_counts_for_its_part
    recorded_memory_comes_from_the_pool
    instances_of_a_recording_use_its_pool
    limit_is_an_error_that_names_the_pool
    pool_lives_until_its_last_buffer_is_freed
    peaks_and_thresholds_change
    trim_keeps_memory_in_use
    managed_pool_serves_tensors_buffers_and_graphs
    managed_memory_may_exceed_gpu_memory
    pool_of_another_device_is_refused
    default_pool_counts_what_names_no_pool
}

/// Returns a pool of managed memory. `None`, after a message, if the driver has none.
fn managed(device: &Device) -> Option<MemoryPool> {
    match MemoryPool::new(device, PoolOptions::new().named("managed").managed()) {
        Ok(pool) => Some(pool),
        Err(error) => {
            assert!(error.to_string().contains("needs a driver of CUDA 13.0"), "{error}");
            println!("not run: {error}");
            None
        }
    }
}

fn managed_pool_serves_tensors_buffers_and_graphs(device: &Device) {
    let Some(pool) = managed(device) else { return };
    let stream = device.new_stream().unwrap();
    let values: Vec<f32> = (0..100_000).map(|number| number as f32).collect();
    let op = Tensor::from_host(values.clone(), 100_000).then(|x| {
        let x = x.into_shared();
        zip!(x.clone().add_scalar(1.0).to_host_vec(), x.max().item())
    });
    let (sums, max) = op.in_pool(&pool).sync_on(&stream).unwrap();
    assert!(sums.iter().zip(&values).all(|(sum, value)| *sum == value + 1.0));
    assert_eq!(max, 99_999.0);
    let buffer = zeros::<u8>(KIB).in_pool(&pool).sync_on(&stream).unwrap();
    assert_eq!(used(&pool), KIB as u64);
    let graph = fill(buffer, 7).graph_on(&stream).unwrap();
    assert_eq!(graph.launch().then(to_host).sync_on(&stream).unwrap(), [7; KIB]);
    drop(graph);
    used_after(&pool, 0);
}

/// Allocates more bytes than a GPU has. The CPU device and a leased device have no managed pools.
fn managed_memory_may_exceed_gpu_memory(device: &Device) {
    if !device.info().address.starts_with("cuda:") {
        return;
    }
    let Some(pool) = managed(device) else { return };
    let stream = device.new_stream().unwrap();
    let len = device.memory().unwrap().total as usize / 8 * 9;
    let ordinary = uninitialized::<u8>(len).sync_on(&stream);
    assert!(matches!(ordinary, Err(Error::OutOfMemory { .. })));
    let large = uninitialized::<u8>(len).in_pool(&pool).sync_on(&stream).unwrap();
    for at in [0, len / 2, len - KIB] {
        let part = large.slice(at..at + KIB).unwrap();
        assert_eq!(to_host(part).sync_on(&stream).unwrap().len(), KIB);
    }
}

const KIB: usize = 1 << 10;

fn pool(device: &Device) -> MemoryPool {
    MemoryPool::new(device, PoolOptions::new().named("test")).unwrap()
}

fn used(pool: &MemoryPool) -> u64 {
    pool.statistics().unwrap().used
}

/// Waits until everything is freed that no handle has.
fn used_after(pool: &MemoryPool, expected: u64) {
    let start = std::time::Instant::now();
    while used(pool) != expected && start.elapsed().as_secs() < 20 {
        pool.device().synchronize().unwrap();
        std::thread::yield_now();
    }
    assert_eq!(used(pool), expected);
}

fn operations_take_all_memory_from_their_pool(device: &Device) {
    let (stream, kernels, pool) =
        (device.new_stream().unwrap(), Kernels::load(device), pool(device));
    let x = h2d(vec![1f32; 1000]).in_pool(&pool).sync_on(&stream).unwrap();
    assert_eq!(used(&pool), 4000);
    let y = zeros::<f32>(500).in_pool(&pool).sync_on(&stream).unwrap();
    let z = uninitialized::<u8>(10).in_pool(&pool).sync_on(&stream).unwrap();
    assert_eq!(used(&pool), 6010);
    drop((y, z));
    // The sum is allocated inside.
    let sum = kernels.add(&x, &x).in_pool(&pool).sync_on(&stream).unwrap();
    used_after(&pool, 8000);
    assert_eq!(to_host(&sum).sync_on(&stream).unwrap(), [2.0; 1000]);
    let tensor = Tensor::<f32>::ones([8, 8]).in_pool(&pool).sync_on(&stream).unwrap();
    let scalar = DeviceScalar::new(7u64).in_pool(&pool).sync_on(&stream).unwrap();
    assert_eq!(used(&pool), 8000 + 256 + 8);
    drop((x, sum, tensor, scalar));
    used_after(&pool, 0);
    let buffer = DeviceBuffer::<u16>::uninitialized_in(&stream, &pool, 3).unwrap();
    let allocation = pool.allocate(&stream, 5).unwrap();
    assert_eq!(used(&pool), 11);
    // Other operations of the stream do not use it.
    let other = zeros::<u8>(1000).sync_on(&stream).unwrap();
    let handle = stream.in_pool(&pool).unwrap();
    let through_handle = zeros::<u8>(100).sync_on(&handle).unwrap();
    assert_eq!((used(&pool), handle == stream), (111, true));
    drop((buffer, allocation, other, through_handle));
}

fn branches_and_closures_inherit_the_pool(device: &Device) {
    let (stream, pool) = (device.new_stream().unwrap(), pool(device));
    let filled = |value: u8| h2d(vec![value; KIB]);
    let op = zip!(filled(1), filled(2), filled(3))
        .then(|(a, b, c)| {
            join_all([a, b, c].map(|buffer| zeros(KIB).then(move |to| copy(buffer, to))))
        })
        .then(move |copies| defer(move || Ok(zip!(value(copies), uninitialized::<u8>(KIB)))));
    let shared = filled(4).shared();
    let op = zip!(op, shared.clone(), filled(5).boxed(), in_order([filled(6), filled(7)]));
    let op = op.in_pool(&pool);
    let output = op.sync_on(&stream).unwrap();
    // Three copies and their sources, the one behind them, and four others.
    assert_eq!(used(&pool), 11 * KIB as u64);
    let policy = cuda_async::policy::SingleStream::new(device).unwrap();
    let scripted = script(async |cx| {
        let first = cx.run(zeros::<u8>(KIB)).await?;
        let second = cx.run(zip!(zeros::<u8>(KIB), zeros::<u8>(KIB))).await?;
        Ok((first, second))
    });
    let scripted = block_on(scripted.in_pool(&pool).schedule(&policy)).unwrap();
    assert_eq!(used(&pool), 14 * KIB as u64);
    drop((output, scripted, shared));
    used_after(&pool, 0);
}

fn inner_pool_counts_for_its_part(device: &Device) {
    let (stream, outer, inner) = (device.new_stream().unwrap(), pool(device), pool(device));
    let part = zeros::<u8>(1).in_pool(&inner);
    let of_default = zeros::<u8>(100).in_pool(&device.default_pool());
    let op = zip!(zeros::<u8>(10), part, of_default)
        .then(|buffers| zip!(value(buffers), zeros::<u8>(20)));
    let buffers = op.in_pool(&outer).sync_on(&stream).unwrap();
    assert_eq!((used(&outer), used(&inner)), (30, 1));
    assert!(outer != inner && outer == outer.clone() && device.default_pool().is_default());
    drop(buffers);
}

fn recorded_memory_comes_from_the_pool(device: &Device) {
    let (stream, kernels, pool) =
        (device.new_stream().unwrap(), Kernels::load(device), pool(device));
    let x = h2d(vec![1f32; 100]).sync_on(&stream).unwrap();
    let twice = kernels.add(&x, &x).then(|y| kernels.scale(y, 3.0)).in_pool(&pool);
    let recorded = record(twice, device).unwrap();
    assert_eq!(used(&pool), 400);
    for _ in 0..3 {
        recorded.replay(&stream).unwrap();
        assert_eq!(to_host(recorded.output()).sync_on(&stream).unwrap(), [6.0; 100]);
    }
    assert_eq!(used(&pool), 400);
    drop(recorded);
    used_after(&pool, 0);
}

/// Streams of their own get temporary buffers of their own.
fn instances_of_a_recording_use_its_pool(device: &Device) {
    let (kernels, pool) = (Kernels::load(device), pool(device));
    let streams = [device.new_stream().unwrap(), device.new_stream().unwrap()];
    let x = h2d(vec![1f32; 100]).sync_on(&streams[0]).unwrap();
    let out = zeros::<f32>(100).sync_on(&streams[0]).unwrap();
    let op = kernels.add(&x, &x).then(|sum| copy(sum, out)).map(|(_, out)| out);
    let recorded = record(op.in_pool(&pool), device).unwrap();
    assert_eq!(used(&pool), 400);
    for stream in &streams {
        recorded.replay(stream).unwrap();
        assert_eq!(to_host(recorded.output()).sync_on(stream).unwrap(), [2.0; 100]);
    }
    assert_eq!(used(&pool) % 400, 0);
    assert!(used(&pool) <= 800);
    drop(recorded);
    used_after(&pool, 0);
}

fn limit_is_an_error_that_names_the_pool(device: &Device) {
    let stream = device.new_stream().unwrap();
    let options = PoolOptions::new().named("activations").limit(1000);
    let pool = MemoryPool::new(device, options).unwrap();
    let held = zeros::<u8>(600).in_pool(&pool).sync_on(&stream).unwrap();
    let refused = zeros::<u8>(401).in_pool(&pool).sync_on(&stream).map(drop).unwrap_err();
    let name = Some("activations".into());
    let expected = Error::OutOfMemory { requested: 401, free: 400, total: 1000, pool: name };
    assert_eq!(refused, expected);
    let message = refused.to_string();
    assert!(
        message.starts_with("the memory pool \"activations\" has reached its limit"),
        "{message}"
    );
    assert!(refused.is_retryable());
    assert_eq!((used(&pool), pool.statistics().unwrap().limit), (600, Some(1000)));
    // Beyond the pool's limit and not beyond the device.
    let op = zeros::<u8>(2000).in_pool(&pool).wait_for_memory(std::time::Duration::from_secs(60));
    let refused = op.sync_on(&stream).map(drop).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the memory pool \"activations\" has a smaller limit than the request: 2000 bytes requested, 400 of 1000 bytes \
         free; create the pool with a larger limit, or split the work"
    );
    drop(held);
    let all = zeros::<u8>(1000).in_pool(&pool).sync_on(&stream).unwrap();
    let outside = zeros::<u8>(1000).sync_on(&stream).unwrap();
    drop((all, outside));
}

fn pool_lives_until_its_last_buffer_is_freed(device: &Device) {
    let (stream, kernels, pool) =
        (device.new_stream().unwrap(), Kernels::load(device), pool(device));
    let x = h2d(vec![1f32; 100]).in_pool(&pool).sync_on(&stream).unwrap();
    let in_flight = kernels.add(&x, &x).in_pool(&pool);
    drop(pool);
    let sum = in_flight.sync_on(&stream).unwrap();
    drop(x);
    assert_eq!(to_host(sum).sync_on(&stream).unwrap(), [2.0; 100]);
}

fn peaks_and_thresholds_change(device: &Device) {
    let stream = device.new_stream().unwrap();
    let options = PoolOptions::new().named("peaks").release_threshold(1 << 20);
    let pool = MemoryPool::new(device, options).unwrap();
    let empty = pool.statistics().unwrap();
    assert_eq!((&*empty.name, empty.used, empty.used_peak, empty.limit), ("peaks", 0, 0, None));
    assert_eq!(empty.release_threshold, 1 << 20);
    let buffers = zip!(zeros::<u8>(1000), zeros::<u8>(2000)).in_pool(&pool);
    let (one, two) = buffers.sync_on(&stream).unwrap();
    drop(two);
    stream.synchronize().unwrap();
    let now = pool.statistics().unwrap();
    assert_eq!((now.used, now.used_peak), (1000, 3000));
    assert!(now.reserved >= 1000 && now.reserved_peak >= 3000, "{now:?}");
    pool.reset_peaks().unwrap();
    let now = pool.statistics().unwrap();
    assert_eq!((now.used, now.used_peak), (1000, 1000));
    assert_eq!(now.reserved_peak, now.reserved);
    pool.set_release_threshold(7).unwrap();
    assert_eq!(pool.statistics().unwrap().release_threshold, 7);
    drop(one);
}

fn trim_keeps_memory_in_use(device: &Device) {
    let (stream, pool) = (device.new_stream().unwrap(), pool(device));
    let (big, bytes) = (64 << 20, 64 << 20u64);
    let kept = h2d(vec![5u8; 100]).in_pool(&pool).sync_on(&stream).unwrap();
    let dropped = uninitialized::<u8>(big).in_pool(&pool).sync_on(&stream).unwrap();
    drop(dropped);
    stream.synchronize().unwrap();
    let idle = pool.statistics().unwrap();
    assert!(idle.used == 100 && idle.reserved >= bytes, "{idle:?}");
    assert!(pool.trim(u64::MAX).unwrap() >= bytes);
    let left = pool.trim(0).unwrap();
    assert!((100..bytes).contains(&left), "{left}");
    assert_eq!(to_host(kept).sync_on(&stream).unwrap(), [5; 100]);
}

fn pool_of_another_device_is_refused(device: &Device) {
    let other = Device::open(&CpuProvider::default(), 0).unwrap();
    let (stream, pool) = (device.new_stream().unwrap(), pool(&other));
    let refused = |result: Result<(), Error>, wanted: &str| match result {
        Err(Error::WrongDevice { what, .. }) => assert_eq!(what, wanted),
        result => panic!("{result:?}"),
    };
    let wrong = |result| refused(result, "the memory pool `test`");
    wrong(zeros::<u8>(1).in_pool(&pool).sync_on(&stream).map(drop));
    // Also if nothing is allocated.
    wrong(value(1).in_pool(&pool).sync_on(&stream).map(drop));
    let of_default = zeros::<u8>(1).in_pool(&other.default_pool());
    refused(of_default.sync_on(&stream).map(drop), "the default memory pool");
    wrong(stream.in_pool(&pool).map(drop));
    wrong(pool.allocate(&stream, 1).map(drop));
    wrong(DeviceBuffer::<u8>::uninitialized_in(&stream, &pool, 1).map(drop));
    // A part on another device may run, and may not allocate.
    let own = MemoryPool::new(device, PoolOptions::new()).unwrap();
    let elsewhere = zeros::<u8>(1).on(&other).in_pool(&own);
    refused(elsewhere.sync_on(&stream).map(drop), &format!("the memory pool `{}`", own.name()));
    assert_eq!(value(3).on(&other).in_pool(&own).sync_on(&stream), Ok(3));
    assert_eq!(zeros::<u8>(1).in_pool(&pool).on(&other).sync_on(&stream).unwrap().len(), 1);
}

#[test]
fn pools_are_limited_and_dropped_ones_make_room() {
    own_devices().iter().for_each(pools_are_limited);
    pools_are_limited(&own_lease(CpuProvider::default()));
}

fn pools_are_limited(device: &Device) {
    let most = device.capabilities().pools as usize;
    let mut pools = Vec::new();
    let refused = loop {
        assert!(pools.len() <= most, "no limit");
        match MemoryPool::new(device, PoolOptions::new()) {
            Ok(pool) => pools.push(pool),
            Err(error) => break error,
        }
    };
    assert_eq!(pools.len(), most);
    assert!(matches!(&refused, Error::OutOfRange { .. }), "{refused:?}");
    assert!(refused.to_string().contains("; drop one"), "{refused}");
    drop(pools);
    for _ in 0..3 * most.min(100) {
        let stream = device.new_stream().unwrap();
        drop(zeros::<u8>(100).in_pool(&pool(device)).sync_on(&stream).unwrap());
    }
}

fn default_pool_counts_what_names_no_pool(device: &Device) {
    let (stream, pool) = (device.new_stream().unwrap(), device.default_pool());
    assert!(&*pool.name() == "default" && pool.device() == device);
    let held = zeros::<u8>(1 << 20).sync_on(&stream).unwrap();
    let now = pool.statistics().unwrap();
    assert!(now.used >= 1 << 20 && now.used_peak >= now.used && now.limit.is_none(), "{now:?}");
    assert!(now.reserved >= 1 << 20, "{now:?}");
    drop(held);
    pool.trim(u64::MAX).unwrap();
}

/// A CPU device with 1 MiB.
fn small_device() -> Device {
    let mut options = CpuOptions::default();
    options.memory = Some(1 << 20);
    Device::open(&CpuProvider::new(options), 0).unwrap()
}

#[test]
fn memory_that_another_pool_keeps_is_found_again() {
    let device = small_device();
    let (stream, one, two) = (device.new_stream().unwrap(), pool(&device), pool(&device));
    let reserved = |pool: &MemoryPool| pool.statistics().unwrap().reserved;
    let bytes = 800 * KIB;
    for (from, to) in [(&one, &two), (&two, &device.default_pool())] {
        drop(zeros::<u8>(bytes).in_pool(from).sync_on(&stream).unwrap());
        assert_eq!((used(from), reserved(from)), (0, bytes as u64));
        assert_eq!(device.memory().unwrap().free, (1 << 20) - bytes as u64);
        let found = zeros::<u8>(bytes).in_pool(to).sync_on(&stream).unwrap();
        assert_eq!(reserved(from), 0);
        drop(found);
    }
    // Memory in use is not.
    let held = zeros::<u8>(bytes).in_pool(&one).sync_on(&stream).unwrap();
    let refused = zeros::<u8>(bytes).in_pool(&two).sync_on(&stream).map(drop);
    assert!(matches!(refused, Err(Error::OutOfMemory { pool: None, .. })), "{refused:?}");
    drop(held);
}

/// The stream keeps a buffer that was dropped while a copy of it was in flight, until the copy is known to be complete.
/// No caller waits for that.
#[test]
fn memory_of_dropped_buffers_is_found_again() {
    let device = small_device();
    let (stream, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    let limited = PoolOptions::new().limit(1000 * KIB as u64);
    for pool in [device.default_pool(), MemoryPool::new(&device, limited).unwrap()] {
        for _ in 0..20 {
            let buffer = zeros::<u8>(800 * KIB).in_pool(&pool).sync_on(&stream).unwrap();
            let shared = Arc::new(buffer);
            let reading = copied(&shared, &stream).unwrap();
            drop((shared, reading));
            drop(zeros::<u8>(800 * KIB).in_pool(&pool).sync_on(&other).unwrap());
        }
    }
}

/// Submits a copy of a part of a buffer, and does not wait for it.
fn copied(
    buffer: &Arc<DeviceBuffer<u8>>,
    stream: &cuda_async::Stream,
) -> Result<DeviceBuffer<u8>, Error> {
    let mut small = DeviceBuffer::uninitialized(stream, 4)?;
    small.copy_from(stream, buffer.slice(..4)?)?;
    Ok(small)
}

/// The pools of a lease together reserve at most its quota, 4 GiB, and the memory of each is found by the others.
#[test]
fn pools_of_a_lease_share_its_quota() {
    let mut options = CpuOptions::default();
    options.memory = Some(8 << 30);
    let device = own_lease(CpuProvider::new(options));
    let (stream, bytes) = (device.new_stream().unwrap(), 3usize << 30);
    let pools = [pool(&device), pool(&device), device.default_pool()];
    for pool in pools.iter().cycle().take(6) {
        let mut buffer = uninitialized::<u8>(bytes).in_pool(pool).sync_on(&stream).unwrap();
        let slice = buffer.slice_mut(bytes - 100..).unwrap();
        fill(slice, 5).sync_on(&stream).unwrap();
        assert_eq!(
            to_host(buffer.slice(bytes - 100..).unwrap()).sync_on(&stream).unwrap(),
            [5; 100]
        );
        let reserved = pools.iter().map(|pool| pool.statistics().unwrap().reserved);
        assert!(reserved.sum::<u64>() <= 4 << 30);
        let refused = uninitialized::<u8>(bytes).in_pool(&pools[0]).sync_on(&stream).map(drop);
        assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
    }
}

/// The device is asked at most twice for each allocation.
#[test]
fn allocation_is_tried_again_exactly_once() {
    let mut options = CpuOptions::default();
    options.memory = Some(1 << 20);
    let provider = WrapperProvider::new(CpuProvider::new(options));
    let mut capabilities = cuda_core::protocol::Capabilities::local(1 << 30);
    capabilities.pools = 4;
    assert!(provider.watched.capabilities.set(capabilities).is_ok());
    let device = provider.open_device();
    let stream = device.new_stream().unwrap();
    let allocations = || provider.watched.allocations.load(Ordering::SeqCst);
    let tried = AtomicUsize::new(0);
    let tries = || allocations() - tried.swap(allocations(), Ordering::SeqCst);
    let held = stream.allocate(800 << 10).unwrap();
    assert_eq!(tries(), 1);
    assert!(matches!(stream.allocate(800 << 10), Err(Error::OutOfMemory { .. })));
    assert_eq!(tries(), 2);
    let pool = pool(&device);
    assert!(matches!(pool.allocate(&stream, 800 << 10), Err(Error::OutOfMemory { .. })));
    assert_eq!(tries(), 2);
    // A request beyond the device cannot succeed.
    assert!(matches!(stream.allocate(2 << 20), Err(Error::OutOfMemory { .. })));
    assert_eq!((tries(), used(&pool)), (1, 0));
    drop(held);
}
