//! `ModuleStore` and its eviction, warm-up, and machine code beside PTX.

use std::{sync::atomic::Ordering, thread};

use cuda_async::{
    Device, Error, LaunchConfig,
    cuda_cpu::CpuProvider,
    kernel::{Image, ModuleCache, ModuleStore},
    launch, memory,
    prelude::*,
};
use futures::executor::block_on;

use crate::{modules, on_every_device, wrapper::WrapperProvider};

const FILTER: &str = include_str!("../../../kernels/filter.ptx");
const CUBIN: &[u8] = include_bytes!("filter_sm_90.cubin");

on_every_device! {
    image_runs_like_the_ptx
    stored_module_runs
}

/// A module of a different text for each number.
fn ptx(number: u32) -> String {
    format!(
        ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry k{number}() {{ ret; }}\n"
    )
}

#[test]
fn least_recently_used_module_is_evicted() {
    let store = ModuleStore::new(2, usize::MAX);
    let provider = WrapperProvider::new(CpuProvider::default());
    let device = provider.open_device();
    let loads = || provider.watched.loads.load(Ordering::SeqCst);
    let [a, b, c] = [0, 1, 2].map(ptx);
    store.get(&device, &a).unwrap();
    store.get(&device, &b).unwrap();
    store.get(&device, &a).unwrap();
    assert_eq!((loads(), store.len()), (2, 2));
    store.get(&device, &c).unwrap();
    assert_eq!((loads(), store.len()), (3, 2));
    store.get(&device, &a).unwrap();
    assert_eq!(loads(), 3, "a was used after b");
    store.get(&device, &b).unwrap();
    assert_eq!(loads(), 4, "b was evicted");
    device.synchronize().unwrap();
    drop(device.load_ptx_blocking(&a)); // unloads the modules that are not used any more
    assert!(provider.watched.unloads.load(Ordering::SeqCst) >= 2);
    store.clear();
    assert!(store.is_empty());
}

#[test]
fn module_in_use_is_not_evicted() {
    let store = ModuleStore::new(1, usize::MAX);
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    let stream = device.new_stream().unwrap();
    let function = store.get(&device, &ptx(0)).unwrap().function("k0").unwrap();
    for number in 1..4 {
        let module = store.module(ptx(number)).sync_on(&stream).unwrap();
        assert_eq!(store.len(), 2, "the one in use and the newest");
        drop(module);
    }
    store.clear();
    assert_eq!(store.len(), 1);
    assert_eq!(store.get(&device, &ptx(0)).unwrap().entries()[0].name, "k0");
    drop(function);
    store.get(&device, &ptx(9)).unwrap();
    assert_eq!(store.len(), 1);
}

#[test]
fn bytes_are_limited_and_closed_devices_leave() {
    let length = ptx(0).len();
    let store = ModuleStore::new(usize::MAX, 2 * length);
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    for number in 0..5 {
        store.get(&device, &ptx(number)).unwrap();
    }
    assert_eq!(store.len(), 2);
    let other = Device::open(&CpuProvider::default(), 0).unwrap();
    drop(device);
    store.get(&other, &ptx(0)).unwrap();
    assert_eq!(store.len(), 1);
}

#[test]
fn failed_load_is_an_error_each_time() {
    let store = ModuleStore::new(4, usize::MAX);
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    let stream = device.new_stream().unwrap();
    for _ in 0..2 {
        assert!(matches!(store.get(&device, "no ptx"), Err(Error::InvalidPtx { .. })));
        let error = store.module("no ptx").sync_on(&stream).unwrap_err();
        assert!(matches!(error, Error::InvalidPtx { .. }), "{error}");
    }
}

#[test]
fn concurrent_callers_load_once() {
    let store = ModuleStore::new(4, usize::MAX);
    let provider = WrapperProvider::new(CpuProvider::default());
    let device = provider.open_device();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| store.get(&device, &ptx(0)).unwrap());
        }
    });
    assert_eq!(provider.watched.loads.load(Ordering::SeqCst), 1);
}

#[test]
fn warm_up_loads_on_each_device_once() {
    let cache = ModuleCache::new(FILTER);
    let providers = [0, 1].map(|_| WrapperProvider::new(CpuProvider::default()));
    let devices = providers.each_ref().map(WrapperProvider::open_device);
    cache.get(&devices[1]).unwrap();
    cache.warm_up(&devices).unwrap();
    cache.warm_up(&devices).unwrap();
    for (provider, device) in providers.iter().zip(&devices) {
        let stream = device.new_stream().unwrap();
        // SAFETY: no other code uses the output. A load would be an error here.
        unsafe { cache.module().async_on(&stream) }.unwrap();
        assert_eq!(provider.watched.loads.load(Ordering::SeqCst), 1);
    }
    let broken = ModuleCache::new("no ptx");
    assert!(matches!(broken.warm_up(&devices), Err(Error::InvalidPtx { .. })));
}

/// On a GPU of compute capability 9 the image runs, on other devices the PTX. Both take the variables of the module.
fn image_runs_like_the_ptx(device: &Device) {
    // SAFETY: both are `kernels/filter.cu`.
    const IMAGES: &[Image] = &[unsafe { Image::cubin((9, 0), CUBIN) }];
    static FILTERS: ModuleCache = ModuleCache::new(FILTER).with_images(IMAGES);
    let stream = device.lend_stream(0).unwrap();
    let module = modules::load(device, || FILTERS.get(device)).unwrap();
    let filter = module.function("filter").unwrap();
    assert_eq!(filter.info().params[2].ty.to_string(), "u32", "as the PTX states it");
    let taps = module.variable::<f32>("taps").unwrap();
    memory::upload_into(taps, vec![1.0f32; 5]).sync_on(&stream).unwrap();
    let input = h2d(vec![0.125f32; 104]).sync_on(&stream).unwrap();
    let out = h2d(vec![9.0f32; 100]).sync_on(&stream).unwrap();
    // SAFETY: the input has four elements more than the output.
    let op = unsafe { launch(&filter, LaunchConfig::for_num_elems(100u32), (out, input, 100u32)) };
    let out = op.then(|(out, _)| to_host(out)).sync_on(&stream).unwrap();
    assert_eq!(out, [0.625; 100]);
    let again =
        modules::load(device, || block_on(FILTERS.module().schedule(&device_policy(device))));
    assert_eq!(again.unwrap().variables().len(), module.variables().len());
}

fn device_policy(device: &Device) -> cuda_async::policy::SingleStream {
    cuda_async::policy::SingleStream::from(device.lend_stream(0).unwrap())
}

fn stored_module_runs(device: &Device) {
    let store = ModuleStore::new(4, usize::MAX);
    let module = modules::load(device, || store.get(device, &ptx(7))).unwrap();
    let kernel = module.function("k7").unwrap();
    // SAFETY: the kernel does nothing.
    let op = unsafe { launch(&kernel, LaunchConfig::new(1, 1), ()) };
    op.sync_on(&device.lend_stream(0).unwrap()).unwrap();
}
