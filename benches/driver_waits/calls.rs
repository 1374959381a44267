//! The calls that are measured. Some create an object that a later call uses and frees.

use std::{
    mem::zeroed,
    ptr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use cudarc::driver::sys;

use crate::gpu::{Gpu, PTX, Result, check, made, new_event, new_stream};

/// Bytes of the memory that is allocated and freed.
const BYTES: usize = 8 << 20;

/// A driver call.
pub struct Call<'a> {
    pub name: &'static str,
    pub run: Box<dyn Fn() -> Result<()> + Send + Sync + 'a>,
}

/// The objects that one call creates and later calls use.
#[derive(Default)]
pub struct Handles {
    memory: AtomicU64,
    module: AtomicU64,
    function: AtomicU64,
    stream: AtomicU64,
    event: AtomicU64,
    pool: AtomicU64,
}

/// The calls, in an order in which each object is created before it is used and freed.
pub fn calls<'a>(gpu: &'a Gpu, handles: &'a Handles) -> Vec<Call<'a>> {
    let mut all = host_memory(gpu, handles);
    all.extend(device_memory(gpu, handles));
    all.extend(refused(gpu));
    all.extend(modules(gpu, handles));
    all.extend(streams(handles));
    all.extend(events(gpu, handles));
    all
}

/// A call with its name.
pub fn call<'a>(name: &'static str, run: impl Fn() -> Result<()> + Send + Sync + 'a) -> Call<'a> {
    Call { name, run: Box::new(run) }
}

fn host_memory<'a>(gpu: &'a Gpu, Handles { memory, pool, .. }: &'a Handles) -> Vec<Call<'a>> {
    let stream = gpu.idle();
    vec![
        call("cuMemHostAlloc, 8 MiB", move || {
            // SAFETY: writes one pointer.
            let block = made(|to| unsafe { sys::cuMemHostAlloc(to, BYTES, 0) })?;
            memory.store(block.expose_provenance() as u64, Relaxed);
            Ok(())
        }),
        call("cuMemFreeHost", move || {
            let block = ptr::with_exposed_provenance_mut(memory.load(Relaxed) as usize);
            // SAFETY: the call before allocated it, and nothing uses it.
            check(unsafe { sys::cuMemFreeHost(block) })
        }),
        call("cuMemPoolCreate, of host memory", move || {
            pool.store(host_pool()?.expose_provenance() as u64, Relaxed);
            Ok(())
        }),
        call("cuMemAllocFromPoolAsync from it, 8 MiB", move || {
            let pool = ptr::with_exposed_provenance_mut(pool.load(Relaxed) as usize);
            // SAFETY: writes one address; the pool and the stream live.
            let address =
                made(|to| unsafe { sys::cuMemAllocFromPoolAsync(to, BYTES, pool, stream.get()) })?;
            memory.store(address, Relaxed);
            stream.synchronize()
        }),
        call("cuMemFreeAsync to it", move || {
            // SAFETY: the call before allocated it, and nothing uses it.
            check(unsafe { sys::cuMemFreeAsync(memory.load(Relaxed), stream.get()) })?;
            stream.synchronize()
        }),
        call("cuMemPoolTrimTo", move || {
            let pool = ptr::with_exposed_provenance_mut(pool.load(Relaxed) as usize);
            // SAFETY: the pool lives.
            check(unsafe { sys::cuMemPoolTrimTo(pool, 0) })
        }),
    ]
}

/// Creates a pool of pinned host memory that keeps freed memory.
fn host_pool() -> Result<sys::CUmemoryPool> {
    // SAFETY: zeros are the defaults of every field.
    let mut props: sys::CUmemPoolProps = unsafe { zeroed() };
    props.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST;
    // SAFETY: reads the description, writes one handle.
    let pool = made(|to| unsafe { sys::cuMemPoolCreate(to, &props) })?;
    let mut keep = u64::MAX;
    let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the value of this attribute is a 64-bit integer.
    check(unsafe { sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut keep).cast()) })?;
    Ok(pool)
}

fn device_memory<'a>(gpu: &'a Gpu, Handles { memory, .. }: &'a Handles) -> Vec<Call<'a>> {
    let stream = gpu.idle();
    vec![
        call("cuMemAlloc, 8 MiB", move || {
            // SAFETY: writes one address.
            memory.store(made(|to| unsafe { sys::cuMemAlloc_v2(to, BYTES) })?, Relaxed);
            Ok(())
        }),
        call("cuMemFree", move || {
            // SAFETY: the call before allocated it, and nothing uses it.
            check(unsafe { sys::cuMemFree_v2(memory.load(Relaxed)) })
        }),
        call("cuMemAllocAsync and cuMemFreeAsync, 8 MiB", move || {
            // SAFETY: writes one address; the stream lives.
            let address = made(|to| unsafe { sys::cuMemAllocAsync(to, BYTES, stream.get()) })?;
            // SAFETY: allocated above, and nothing uses it.
            check(unsafe { sys::cuMemFreeAsync(address, stream.get()) })
        }),
    ]
}

/// Allocations that the driver refuses.
fn refused<'a>(gpu: &'a Gpu) -> Vec<Call<'a>> {
    let allocate = move |bytes: fn(usize) -> usize| {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        let mut address = 0;
        // SAFETY: writes one address; the stream lives.
        match unsafe { sys::cuMemAllocAsync(&mut address, bytes(total), gpu.idle().get()) } {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(()),
            status => Err(format!("an allocation that should be refused: {status:?}").into()),
        }
    };
    vec![
        call("cuMemAllocAsync, 1 PiB, refused", move || allocate(|_| 1 << 50)),
        call("cuMemAllocAsync, all memory, refused", move || allocate(|total| total)),
    ]
}

fn modules<'a>(gpu: &'a Gpu, Handles { module, function, .. }: &'a Handles) -> Vec<Call<'a>> {
    let load = move || -> Result<()> {
        // SAFETY: the text ends in a NUL byte; writes one handle.
        let loaded = made(|to| unsafe { sys::cuModuleLoadData(to, PTX.as_ptr().cast()) })?;
        // SAFETY: the module was loaded above; writes one handle.
        let found = made(|to| unsafe { sys::cuModuleGetFunction(to, loaded, c"timed".as_ptr()) })?;
        module.store(loaded.expose_provenance() as u64, Relaxed);
        function.store(found.expose_provenance() as u64, Relaxed);
        Ok(())
    };
    let unload = move || {
        let module = ptr::with_exposed_provenance_mut(module.load(Relaxed) as usize);
        // SAFETY: a call before loaded it, and nothing uses it.
        check(unsafe { sys::cuModuleUnload(module) })
    };
    let found = move || ptr::with_exposed_provenance_mut(function.load(Relaxed) as usize);
    let launch = move || {
        gpu.launch(found(), gpu.idle().get(), Duration::ZERO)?;
        gpu.idle().synchronize()
    };
    vec![
        call("cuModuleLoadData", load),
        call("the first launch of its kernel, and its end", launch),
        call("the second launch, and its end", launch),
        call("cuModuleUnload", unload),
        call("cuModuleLoadData again", load),
        // SAFETY: the call before loaded the module.
        call("cuFuncLoad", move || check(unsafe { sys::cuFuncLoad(found()) })),
        call("the first launch after it, and its end", launch),
        call("cuModuleUnload again", unload),
    ]
}

fn streams<'a>(Handles { stream, .. }: &'a Handles) -> Vec<Call<'a>> {
    vec![
        call("cuStreamCreate", move || {
            stream.store(new_stream(0)?.expose_provenance() as u64, Relaxed);
            Ok(())
        }),
        call("cuStreamCreate, 64 times", || (0..64).try_for_each(|_| new_stream(0).map(drop))),
        call("cuStreamDestroy", move || {
            let stream = ptr::with_exposed_provenance_mut(stream.load(Relaxed) as usize);
            // SAFETY: the call before made it, and nothing uses it.
            check(unsafe { sys::cuStreamDestroy_v2(stream) })
        }),
    ]
}

fn events<'a>(gpu: &'a Gpu, Handles { event, .. }: &'a Handles) -> Vec<Call<'a>> {
    let stream = gpu.idle();
    let made_before = move || ptr::with_exposed_provenance_mut(event.load(Relaxed) as usize);
    vec![
        call("cuEventCreate", move || {
            event.store(new_event()?.expose_provenance() as u64, Relaxed);
            Ok(())
        }),
        call("cuEventCreate, 4096 times", || (0..4096).try_for_each(|_| new_event().map(drop))),
        call("cuEventRecord and its end", move || {
            // SAFETY: the call before made the event, and the stream lives.
            check(unsafe { sys::cuEventRecord(made_before(), stream.get()) })?;
            // SAFETY: a call before made the event.
            check(unsafe { sys::cuEventSynchronize(made_before()) })
        }),
        // SAFETY: a call before made the event, and nothing uses it.
        call("cuEventDestroy", move || check(unsafe { sys::cuEventDestroy_v2(made_before()) })),
    ]
}
