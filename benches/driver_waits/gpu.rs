//! A GPU with three streams: for the long kernel, for launches during it, and for the measured calls.

use std::{ffi::c_void, mem::MaybeUninit, ptr, sync::Arc, time::Duration};

use cudarc::driver::{CudaContext, result, sys};

/// Errors that threads can pass on.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The context, its streams and its kernels. They are never freed.
pub struct Gpu {
    context: Arc<CudaContext>,
    busy: sys::CUstream,
    other: sys::CUstream,
    idle: Stream,
    timed: sys::CUfunction,
    buffer: sys::CUdeviceptr,
}

/// A stream of the context.
#[derive(Clone, Copy)]
pub struct Stream(sys::CUstream);

// SAFETY: the handle is never written, and the driver accepts it on every thread whose current context is its own.
unsafe impl Send for Stream {}
// SAFETY: the handle is never written, and the driver accepts it on every thread whose current context is its own.
unsafe impl Sync for Stream {}

impl Stream {
    pub fn get(self) -> sys::CUstream {
        self.0
    }

    pub fn synchronize(self) -> Result<()> {
        // SAFETY: the stream lives as long as the process.
        check(unsafe { sys::cuStreamSynchronize(self.0) })
    }
}

// SAFETY: the handles are never written, and the driver accepts them on every thread whose current context is theirs.
unsafe impl Sync for Gpu {}

/// A kernel that runs for a given time.
pub const PTX: &str = concat!(include_str!("../../kernels/timed.ptx"), "\0");

impl Gpu {
    pub fn open() -> Result<Self> {
        let context = CudaContext::new(0)?;
        context.bind_to_thread()?;
        let stream = || result::stream::create(result::stream::StreamKind::NonBlocking);
        // SAFETY: the text ends in a NUL byte; the context is current.
        let timed = unsafe {
            let module = result::module::load_data(PTX.as_ptr().cast())?;
            result::module::get_function(module, c"timed".to_owned())?
        };
        // SAFETY: the context is current.
        let buffer = unsafe { result::malloc_sync(4096)? };
        let (busy, other, idle) = (stream()?, stream()?, Stream(stream()?));
        let gpu = Self { context, busy, other, idle, timed, buffer };
        gpu.run_for(Duration::ZERO)?;
        gpu.launch_on_other()?;
        gpu.synchronize()?;
        Ok(gpu)
    }

    pub fn name(&self) -> Result<String> {
        Ok(self.context.name()?)
    }

    /// Makes the context current on the calling thread.
    pub fn bind(&self) -> Result<()> {
        Ok(self.context.bind_to_thread()?)
    }

    /// Launches the long kernel, during which the calls are measured.
    pub fn run_for(&self, time: Duration) -> Result<()> {
        self.launch(self.timed, self.busy, time)
    }

    pub fn launch_on_other(&self) -> Result<()> {
        self.launch(self.timed, self.other, Duration::ZERO)
    }

    pub fn wait_for_other(&self) -> Result<()> {
        Stream(self.other).synchronize()
    }

    /// The stream of the long kernel.
    pub fn busy(&self) -> Stream {
        Stream(self.busy)
    }

    pub fn buffer(&self) -> sys::CUdeviceptr {
        self.buffer
    }

    pub fn launch_idle(&self, time: Duration) -> Result<()> {
        self.launch(self.timed, self.idle.get(), time)
    }

    /// A stream that is used only by the measured calls.
    pub fn idle(&self) -> Stream {
        self.idle
    }

    /// Waits for all streams.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.context.synchronize()?)
    }

    /// Launches `function`, which takes a buffer and a number of nanoseconds, with one warp.
    pub fn launch(
        &self,
        function: sys::CUfunction,
        stream: sys::CUstream,
        time: Duration,
    ) -> Result<()> {
        let nanos = u32::try_from(time.as_nanos())?;
        let mut params = [ptr::from_ref(&self.buffer) as *mut c_void, ptr::from_ref(&nanos) as _];
        // SAFETY: the parameters are those of `timed`, which writes less than the buffer has.
        check(unsafe {
            let params = params.as_mut_ptr();
            sys::cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, params, ptr::null_mut())
        })
    }
}

/// Converts the status of a driver call to a result.
pub fn check(status: sys::CUresult) -> Result<()> {
    Ok(status.result()?)
}

/// Creates an event without timing, which is cheap to record.
pub fn new_event() -> Result<sys::CUevent> {
    let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
    // SAFETY: writes one handle.
    made(|to| unsafe { sys::cuEventCreate(to, flags) })
}

/// Creates a stream that has no implicit order with the default stream.
pub fn new_stream(priority: i32) -> Result<sys::CUstream> {
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: writes one handle.
    made(|to| unsafe { sys::cuStreamCreateWithPriority(to, flags, priority) })
}

/// Returns the highest stream priority.
pub fn highest_priority() -> Result<i32> {
    let mut lowest = 0;
    // SAFETY: writes two integers.
    made(|to| unsafe { sys::cuCtxGetStreamPriorityRange(&mut lowest, to) })
}

/// Returns the free memory of the device in bytes.
pub fn free_memory() -> Result<i64> {
    let mut total = 0;
    // SAFETY: writes two integers.
    let free: usize = made(|to| unsafe { sys::cuMemGetInfo_v2(to, &mut total) })?;
    Ok(free as i64)
}

/// Runs a driver call and returns the handle that it writes.
pub fn made<T>(make: impl FnOnce(*mut T) -> sys::CUresult) -> Result<T> {
    let mut handle = MaybeUninit::uninit();
    check(make(handle.as_mut_ptr()))?;
    // SAFETY: the driver has written it, since it reported success.
    Ok(unsafe { handle.assume_init() })
}
