//! The calls that are measured while a module is loaded or unloaded, which waits for a running kernel.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use cudarc::driver::sys;

use crate::{
    calls::{Call, call},
    gpu::{Gpu, PTX, Result, check, made, new_event, new_stream},
};

/// The event and the pinned memory that the calls use, and the module that is unloaded.
#[derive(Default)]
pub struct Prepared {
    module: AtomicU64,
    event: AtomicU64,
    pinned: AtomicU64,
}

impl Prepared {
    fn event(&self) -> sys::CUevent {
        ptr::with_exposed_provenance_mut(self.event.load(Relaxed) as usize)
    }

    fn pinned(&self) -> sys::CUdeviceptr {
        self.pinned.load(Relaxed)
    }
}

/// The action of the other thread during the measurement.
#[derive(Clone, Copy)]
pub enum Change {
    Load,
    Unload,
}

impl Change {
    /// Called while the device is idle.
    pub fn prepare(self, prepared: &Prepared) -> Result<()> {
        if let Self::Unload = self { load(prepared) } else { Ok(()) }
    }

    /// Called while a kernel runs.
    pub fn run(self, prepared: &Prepared) -> Result<()> {
        match self {
            Self::Load => load(prepared),
            Self::Unload => {
                let module = prepared.module.load(Relaxed) as usize;
                // SAFETY: `prepare` loaded it, and nothing uses it.
                check(unsafe { sys::cuModuleUnload(ptr::with_exposed_provenance_mut(module)) })
            }
        }
    }
}

fn load(prepared: &Prepared) -> Result<()> {
    // SAFETY: the text ends in a NUL byte; writes one handle.
    let module = made(|to| unsafe { sys::cuModuleLoadData(to, PTX.as_ptr().cast()) })?;
    prepared.module.store(module.expose_provenance() as u64, Relaxed);
    Ok(())
}

/// Creates an event that was recorded and passed, and pinned memory.
pub fn prepare(gpu: &Gpu) -> Result<Prepared> {
    let prepared = Prepared::default();
    let event = new_event()?;
    // SAFETY: the event was made above, and the stream lives.
    check(unsafe { sys::cuEventRecord(event, gpu.idle().get()) })?;
    gpu.idle().synchronize()?;
    // SAFETY: writes one pointer.
    let pinned = made(|to| unsafe { sys::cuMemHostAlloc(to, 4096, 0) })?;
    prepared.event.store(event.expose_provenance() as u64, Relaxed);
    prepared.pinned.store(pinned.expose_provenance() as u64, Relaxed);
    Ok(prepared)
}

/// The calls. All but one use an idle stream.
pub fn calls<'a>(gpu: &'a Gpu, prepared: &'a Prepared) -> Vec<Call<'a>> {
    let mut all = queries(gpu, prepared);
    all.extend(submissions(gpu, prepared));
    all
}

fn queries<'a>(gpu: &'a Gpu, prepared: &'a Prepared) -> Vec<Call<'a>> {
    let stream = gpu.idle();
    vec![
        call("cuStreamQuery, of an idle stream", move || {
            // SAFETY: the stream lives.
            query(unsafe { sys::cuStreamQuery(stream.get()) })
        }),
        call("cuStreamQuery, of the kernel's stream", || {
            // SAFETY: the stream lives.
            query(unsafe { sys::cuStreamQuery(gpu.busy().get()) })
        }),
        call("cuEventQuery", || {
            // SAFETY: the event lives.
            query(unsafe { sys::cuEventQuery(prepared.event()) })
        }),
        call("cuStreamSynchronize, of an idle stream", move || stream.synchronize()),
    ]
}

fn submissions<'a>(gpu: &'a Gpu, prepared: &'a Prepared) -> Vec<Call<'a>> {
    let stream = gpu.idle();
    vec![
        call("cuLaunchKernel", || gpu.launch_idle(Duration::ZERO)),
        call("cuStreamCreate", || new_stream(0).map(drop)),
        call("cuEventCreate", || new_event().map(drop)),
        call("cuEventRecord", move || {
            // SAFETY: the event and the stream live.
            check(unsafe { sys::cuEventRecord(prepared.event(), stream.get()) })
        }),
        call("cuStreamWaitEvent", move || {
            // SAFETY: the event and the stream live; 0 means no flags.
            check(unsafe { sys::cuStreamWaitEvent(stream.get(), prepared.event(), 0) })
        }),
        call("cuStreamWriteValue64", move || {
            // SAFETY: the pinned memory has eight bytes, and the stream lives.
            check(unsafe { sys::cuStreamWriteValue64_v2(stream.get(), prepared.pinned(), 1, 0) })
        }),
        call("cuMemAllocAsync and cuMemFreeAsync", move || {
            // SAFETY: writes one address; the stream lives.
            let address = made(|to| unsafe { sys::cuMemAllocAsync(to, 4096, stream.get()) })?;
            // SAFETY: allocated above, and nothing uses it.
            check(unsafe { sys::cuMemFreeAsync(address, stream.get()) })
        }),
        call("cuMemcpyHtoDAsync, pinned", move || {
            let from = ptr::with_exposed_provenance::<c_void>(prepared.pinned() as usize);
            // SAFETY: the buffer and the pinned memory have 64 bytes, and the stream lives.
            check(unsafe { sys::cuMemcpyHtoDAsync_v2(gpu.buffer(), from, 64, stream.get()) })
        }),
        call("cuLaunchHostFunc", move || {
            let data = ptr::null_mut();
            // SAFETY: `nothing` has the type that the driver calls, and the stream lives.
            check(unsafe { sys::cuLaunchHostFunc(stream.get(), Some(nothing), data) })
        }),
    ]
}

extern "C" fn nothing(_: *mut c_void) {}

fn query(status: sys::CUresult) -> Result<()> {
    if status == sys::CUresult::CUDA_ERROR_NOT_READY { Ok(()) } else { check(status) }
}
