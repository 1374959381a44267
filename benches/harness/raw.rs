//! The driver's side: the same kernels, launched by plain driver calls.
//!
//! # Rules
//! [`Raw`] is shared by threads: its handles are never written, and the driver takes them on any thread whose
//! current context is theirs. A [`Lane`] is used by one thread at a time, with the context current: where it was
//! made it is, elsewhere [`Lane::bind`] makes it so. What is allocated lives as long as the process.

use std::{
    ffi::c_void,
    ptr,
    sync::{Arc, atomic::AtomicU64},
};

use cudarc::driver::{
    CudaContext,
    result::{self, DriverError},
    sys,
};

/// Elements of the buffer that `scale` scales.
pub const LEN: usize = 2048;

/// Where something lies on the device.
pub type Address = sys::CUdeviceptr;

/// The kernels, loaded.
pub struct Raw {
    context: Arc<CudaContext>,
    scale: sys::CUfunction,
    timed: sys::CUfunction,
}

// SAFETY: see the rules.
unsafe impl Send for Raw {}
// SAFETY: see the rules.
unsafe impl Sync for Raw {}

/// A stream, with memory on both sides.
pub struct Lane<'a> {
    raw: &'a Raw,
    stream: sys::CUstream,
    bytes: usize,
    /// Of `bytes` bytes.
    pub x: Address,
    /// Pinned; of `bytes` bytes.
    host: *mut c_void,
}

// SAFETY: see the rules.
unsafe impl Send for Lane<'_> {}

/// An event.
pub struct Event(sys::CUevent);

/// A word of pinned host memory that a stream writes.
pub struct Flag {
    /// As this machine sees it.
    pub word: &'static AtomicU64,
    address: Address,
}

impl Raw {
    /// On the first GPU.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new() -> Result<Self, DriverError> {
        let context = CudaContext::new(0)?;
        context.bind_to_thread()?;
        std::mem::forget(context.clone());
        let basic = concat!(include_str!("../../kernels/basic.ptx"), "\0");
        let timed = concat!(include_str!("../../kernels/timed.ptx"), "\0");
        // SAFETY: the texts end in a NUL byte; the context is current.
        unsafe {
            let basic = result::module::load_data(basic.as_ptr().cast())?;
            let timed = result::module::load_data(timed.as_ptr().cast())?;
            let scale = result::module::get_function(basic, c"scale".to_owned())?;
            let timed = result::module::get_function(timed, c"timed".to_owned())?;
            Ok(Self { context, scale, timed })
        }
    }

    /// A stream of the calling thread, with zeroed buffers of `bytes` bytes.
    ///
    /// # Errors
    /// What the driver says.
    pub fn lane(&self, bytes: usize) -> Result<Lane<'_>, DriverError> {
        self.context.bind_to_thread()?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        // SAFETY: the context is current.
        let host = unsafe { result::malloc_host(bytes, 0)? };
        // SAFETY: the block has that many bytes and nobody else knows it.
        unsafe { ptr::write_bytes(host.cast::<u8>(), 0, bytes) };
        let x = zeroed(bytes)?;
        Ok(Lane { raw: self, stream, bytes, x, host })
    }
}

impl Lane<'_> {
    /// Makes the context current on the calling thread.
    ///
    /// # Errors
    /// What the driver says.
    pub fn bind(&self) -> Result<(), DriverError> {
        self.raw.context.bind_to_thread()
    }

    /// One more buffer of as many bytes, for [`scale`](Self::scale).
    ///
    /// # Errors
    /// What the driver says.
    pub fn buffer(&self) -> Result<Address, DriverError> {
        zeroed(self.bytes)
    }

    /// Launches `scale(x, 1.0, LEN)`; `x` is [`Lane::x`] or a [`buffer`](Self::buffer).
    pub fn scale(&self, x: Address) {
        assert!(self.bytes >= LEN * 4, "too small to be scaled");
        let (factor, n) = (1.0f32, LEN as u32);
        let params = [ptr::from_ref(&x) as _, ptr::from_ref(&factor) as _, ptr::from_ref(&n) as _];
        self.launch(self.raw.scale, [LEN as u32 / 256, 256], params, ptr::null_mut());
    }

    /// The same with the parameters in one buffer, as a library has them that does not know the kernel.
    pub fn scale_packed(&self) {
        #[repr(C)]
        struct Params(Address, f32, u32);
        assert!(self.bytes >= LEN * 4, "too small to be scaled");
        let params = Params(self.x, 1.0, LEN as u32);
        let size = size_of::<Params>();
        // The driver's `CU_LAUNCH_PARAM_BUFFER_POINTER`, `.._SIZE` and `.._END`.
        let [pointer, bytes, end] = [1usize, 2, 0].map(|tag| tag as *mut c_void);
        let params = ptr::from_ref(&params) as *mut c_void;
        let mut extra = [pointer, params, bytes, ptr::from_ref(&size) as *mut c_void, end];
        self.launch(self.raw.scale, [LEN as u32 / 256, 256], [], extra.as_mut_ptr());
    }

    /// Launches `timed` with one warp.
    pub fn timed(&self, nanos: u32) {
        let params = [ptr::from_ref(&self.x) as _, ptr::from_ref(&nanos) as _];
        self.launch(self.raw.timed, [1, 32], params, ptr::null_mut());
    }

    fn launch<const N: usize>(
        &self,
        function: sys::CUfunction,
        [grid, block]: [u32; 2],
        mut params: [*mut c_void; N],
        extra: *mut *mut c_void,
    ) {
        let params = if N == 0 { ptr::null_mut() } else { params.as_mut_ptr() };
        // SAFETY: the callers give what the kernel takes: pointers to values that live until this returns, and
        // buffers that are large enough and are never freed.
        let status = unsafe {
            sys::cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, self.stream, params, extra)
        };
        check(status);
    }

    /// From pinned memory to the device.
    pub fn upload(&self) {
        // SAFETY: both have that many bytes.
        check(unsafe { sys::cuMemcpyHtoDAsync_v2(self.x, self.host, self.bytes, self.stream) });
    }

    /// From the device to pinned memory.
    pub fn download(&self) {
        // SAFETY: both have that many bytes.
        check(unsafe { sys::cuMemcpyDtoHAsync_v2(self.host, self.x, self.bytes, self.stream) });
    }

    /// Waits for the stream.
    pub fn synchronize(&self) {
        // SAFETY: the stream is this lane's own.
        check(unsafe { sys::cuStreamSynchronize(self.stream) });
    }

    /// A new event, without a clock.
    ///
    /// # Errors
    /// What the driver says.
    pub fn event(&self) -> Result<Event, DriverError> {
        result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map(Event)
    }

    /// Records `event`.
    pub fn record(&self, event: &Event) {
        // SAFETY: both are of this context.
        check(unsafe { sys::cuEventRecord(event.0, self.stream) });
    }

    /// What comes next on this stream waits for `event`.
    pub fn wait(&self, event: &Event) {
        // SAFETY: both are of this context.
        check(unsafe { sys::cuStreamWaitEvent(self.stream, event.0, 0) });
    }

    /// A word that this stream can write.
    ///
    /// # Errors
    /// What the driver says.
    pub fn flag(&self) -> Result<Flag, DriverError> {
        let mut address = 0;
        // SAFETY: the context is current; the block is mapped, large and aligned enough, zeroed before it is
        // read, and never freed.
        unsafe {
            let host = result::malloc_host(4096, sys::CU_MEMHOSTALLOC_DEVICEMAP)?;
            ptr::write_bytes(host.cast::<u8>(), 0, 4096);
            sys::cuMemHostGetDevicePointer_v2(&mut address, host, 0).result()?;
            Ok(Flag { word: &*host.cast::<AtomicU64>(), address })
        }
    }

    /// Writes `value` when all before it is done.
    pub fn write(&self, flag: &Flag, value: u64) {
        // SAFETY: the word is mapped and never freed.
        check(unsafe { sys::cuStreamWriteValue64_v2(self.stream, flag.address, value, 0) });
    }
}

fn zeroed(bytes: usize) -> Result<Address, DriverError> {
    // SAFETY: the caller's context is current; the memory is new and has that many bytes.
    unsafe {
        let x = result::malloc_sync(bytes)?;
        result::memset_d8_sync(x, 0, bytes)?;
        Ok(x)
    }
}

#[allow(clippy::panic)] // a benchmark that fails has nothing to print
fn check(status: sys::CUresult) {
    if status != sys::CUresult::CUDA_SUCCESS {
        panic!("{status:?}");
    }
}
