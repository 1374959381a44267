//! `ModuleCache`: modules that are loaded once for each device.

use std::{sync::atomic::Ordering, thread};

use cuda_async::{
    Device, DeviceBuffer, LaunchConfig, Module, cuda_cpu::CpuProvider, kernel::ModuleCache, launch,
    prelude::*,
};
use futures::executor::block_on;

use crate::wrapper::WrapperProvider;

const PTX: &str = include_str!("../../../kernels/basic.ptx");

fn double(
    module: &Module,
    x: DeviceBuffer<f32>,
) -> impl DeviceOp<Output = DeviceBuffer<f32>> + use<> {
    let scale = module.function("scale").unwrap();
    // SAFETY: reads and writes x, of one element.
    unsafe { launch(&scale, LaunchConfig::new(1, 1), (x, 2.0f32, 1u32)) }
}

fn doubled(device: &Device, module: &Module) -> Vec<f32> {
    let op = h2d(vec![4.0f32]).then(|x| double(module, x)).then(to_host);
    op.sync_on(&device.new_stream().unwrap()).unwrap()
}

#[test]
fn module_is_loaded_once_for_each_device_and_stays_loaded() {
    let cache = ModuleCache::new(PTX);
    for _ in 0..2 {
        let provider = WrapperProvider::new(CpuProvider::default());
        let device = provider.open_device();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(doubled(&device, &cache.get(&device).unwrap()), [8.0]));
            }
        });
        let stream = device.new_stream().unwrap();
        let policy = cuda_async::policy::SingleStream::from(stream);
        let module = block_on(cache.module().schedule(&policy)).unwrap();
        assert_eq!(doubled(&device, &module), [8.0]);
        drop(module);
        device.synchronize().unwrap();
        drop(device.load_ptx_blocking(PTX)); // unloads the modules that are not used any more
        let [loads, unloads] = [&provider.watched.loads, &provider.watched.unloads];
        assert_eq!(loads.load(Ordering::SeqCst) - 1, 1);
        assert_eq!(unloads.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn cache_keeps_no_device_open() {
    let cache = ModuleCache::new(PTX);
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    let module = cache.get(&device).unwrap();
    let cached = module.cached();
    let weak = device.downgrade();
    drop(device);
    assert!(weak.upgrade().is_some(), "a module keeps its device open");
    drop(module);
    assert!(weak.is_closed());
    assert!(cached.get().is_none());
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    assert_eq!(doubled(&device, &cache.get(&device).unwrap()), [8.0]);
}

/// A loaded module needs no wait, so it is possible where steps may not wait.
#[test]
fn module_that_is_loaded_is_ready_at_once() {
    let (cache, device) =
        (ModuleCache::new(PTX), Device::open(&CpuProvider::default(), 0).unwrap());
    let stream = device.new_stream().unwrap();
    // SAFETY: no other code uses the output.
    let refused = unsafe { cache.module().async_on(&stream) };
    let refused = refused.unwrap_err();
    assert!(matches!(refused, cuda_async::Error::NotLoaded { .. }), "{refused:?}");
    assert!(refused.to_string().contains("run `ModuleCache::module()`"), "{refused}");
    cache.get(&device).unwrap();
    // SAFETY: no other code uses the output.
    let module = unsafe { cache.module().async_on(&stream) }.unwrap();
    assert_eq!(doubled(&device, &module), [8.0]);
}

#[test]
fn failed_load_is_reported_to_every_call() {
    let (cache, device) =
        (ModuleCache::new("no PTX"), Device::open(&CpuProvider::default(), 0).unwrap());
    for _ in 0..2 {
        assert!(matches!(cache.get(&device), Err(cuda_async::Error::InvalidPtx { .. })));
        let op = cache.module().sync_on(&device.new_stream().unwrap());
        assert!(matches!(op, Err(cuda_async::Error::InvalidPtx { .. })));
    }
}

/// Concurrent lookups of a loaded module never miss it.
#[test]
fn loaded_module_is_found_by_many_threads() {
    let provider = WrapperProvider::new(CpuProvider::default());
    let (cache, device) = (ModuleCache::new(PTX), provider.open_device());
    cache.get(&device).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = device.new_stream().unwrap();
                for _ in 0..2000 {
                    // SAFETY: no other code uses the output.
                    unsafe { cache.module().async_on(&stream) }.unwrap();
                }
            });
        }
    });
    assert_eq!(provider.watched.loads.load(Ordering::SeqCst), 1);
}

/// Operations that need a module at the same time wait for one load, also if the first of them is dropped.
#[test]
fn concurrent_operations_share_one_load() {
    let provider = WrapperProvider::new(CpuProvider::default());
    let (cache, device) = (ModuleCache::new(PTX), provider.open_device());
    let policy = cuda_async::policy::SingleStream::new(&device).unwrap();
    let mut waiting: Vec<_> = (0..50).map(|_| cache.module().schedule(&policy)).collect();
    drop(waiting.remove(0));
    let modules = block_on(futures::future::try_join_all(waiting)).unwrap();
    assert_eq!(modules.len(), 49);
    assert_eq!(provider.watched.loads.load(Ordering::SeqCst), 1);
}
