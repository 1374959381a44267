//! Launches the kernels of the benchmarks by plain driver calls, for comparison.
//!
//! # Rules
//! Threads share [`Raw`]: its handles are never written, and the driver accepts them on every thread whose current
//! context is theirs. One thread at a time uses a [`Lane`], with the context current. The context is current on the
//! thread that made the lane; on another thread [`Lane::bind`] makes it current. Allocations are never freed.

use std::{
    ffi::c_void,
    ptr,
    sync::{Arc, atomic::AtomicU64},
};

pub use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, result, sys};

/// The number of elements that `scale` scales.
pub const LEN: usize = 2048;

/// A device address.
pub type Address = sys::CUdeviceptr;

/// A module with the kernel `address(x, out)`, which stores the address `x` at `out`.
pub const ADDRESS: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry address(.param .u64 x, .param .u64 out)
{
    .reg .b64 %address, %out;
    ld.param.u64 %address, [x];
    ld.param.u64 %out, [out];
    cvta.to.global.u64 %out, %out;
    st.global.u64 [%out], %address;
    ret;
}
";

/// The context and the loaded kernels.
pub struct Raw {
    context: Arc<CudaContext>,
    pub(crate) scale: sys::CUfunction,
    pub(crate) timed: sys::CUfunction,
}

// SAFETY: the handles are never written, and the driver accepts them on every thread whose current context is theirs.
unsafe impl Send for Raw {}
// SAFETY: the handles are never written, and the driver accepts them on every thread whose current context is theirs.
unsafe impl Sync for Raw {}

/// A stream with a device buffer and pinned host memory.
pub struct Lane<'a> {
    pub(crate) raw: &'a Raw,
    pub(crate) stream: sys::CUstream,
    bytes: usize,
    /// The device buffer, of `bytes` bytes.
    pub x: Address,
    /// Pinned host memory, of `bytes` bytes.
    host: *mut c_void,
}

// SAFETY: one thread at a time uses a lane, and the driver accepts its handles on every thread whose current context is
// theirs.
unsafe impl Send for Lane<'_> {}

/// A kernel that belongs to no context.
#[derive(Clone, Copy)]
pub struct LibraryKernel(sys::CUkernel);

/// An event.
pub struct Event(sys::CUevent);

/// A word of pinned host memory that a stream writes.
pub struct Flag {
    /// The word in host memory.
    pub word: &'static AtomicU64,
    address: Address,
}

impl Raw {
    /// Opens the first GPU and loads the kernels.
    ///
    /// # Errors
    /// The error of the driver.
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

    /// Creates a lane for the calling thread, with zeroed buffers of `bytes` bytes.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn lane(&self, bytes: usize) -> Result<Lane<'_>, DriverError> {
        self.context.bind_to_thread()?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        // SAFETY: the context is current.
        let host = unsafe { result::malloc_host(bytes, 0)? };
        // SAFETY: the block has that many bytes, and only this function knows its address.
        unsafe { ptr::write_bytes(host.cast::<u8>(), 0, bytes) };
        let x = zeroed(bytes)?;
        Ok(Lane { raw: self, stream, bytes, x, host })
    }
}

impl Lane<'_> {
    /// Makes the lane enqueue on `stream`, a stream of the same context. The caller keeps `stream` alive.
    ///
    /// The same calls can take some percent longer on one stream of a process than on another. To compare small
    /// differences, use the same stream.
    ///
    /// # Safety
    /// `stream` is a stream of the same context, and lives as long as the lane.
    #[must_use]
    pub unsafe fn on(mut self, stream: *mut c_void) -> Self {
        self.stream = stream.cast();
        self
    }

    /// Makes the lane use the memory at `x`. The same calls can take some percent longer with one buffer than with
    /// another, probably because parts of the GPU's memory are at different distances from its cores.
    ///
    /// # Safety
    /// `x` is memory of the same context, as large as the lane's buffers, and lives as long as the lane. Nothing else
    /// uses it while the lane does.
    #[must_use]
    pub unsafe fn with_memory(mut self, x: Address) -> Self {
        self.x = x;
        self
    }

    /// Loads `scale` as a kernel of a library, which belongs to no context. A launch takes the context of the stream.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn library_kernel(&self) -> Result<LibraryKernel, DriverError> {
        let basic = concat!(include_str!("../../kernels/basic.ptx"), "\0");
        let (mut library, mut kernel) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the text ends in a NUL byte, there are no options, and both calls write one handle.
        unsafe {
            let text = basic.as_ptr().cast();
            sys::cuLibraryLoadData(
                &mut library,
                text,
                ptr::null_mut(),
                ptr::null_mut(),
                0,
                ptr::null_mut(),
                ptr::null_mut(),
                0,
            )
            .result()?;
            sys::cuLibraryGetKernel(&mut kernel, library, c"scale".as_ptr()).result()?;
        }
        Ok(LibraryKernel(kernel))
    }

    /// Makes the context current on the calling thread.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn bind(&self) -> Result<(), DriverError> {
        self.raw.context.bind_to_thread()
    }

    /// Allocates another buffer of the same size, for [`scale`](Self::scale).
    ///
    /// # Errors
    /// The error of the driver.
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

    /// Launches as [`scale`](Self::scale) does, with the parameters packed in one buffer. A library that does not know
    /// the kernel's parameters launches this way.
    pub fn scale_packed(&self) {
        self.packed(self.raw.scale);
    }

    /// Launches as [`scale_packed`](Self::scale_packed) does, with a kernel of a library.
    pub fn scale_by(&self, kernel: LibraryKernel) {
        self.packed(kernel.0.cast());
    }

    /// Queries the current context.
    pub fn query_context(&self) {
        let mut context = ptr::null_mut();
        // SAFETY: writes one handle.
        check(unsafe { sys::cuCtxGetCurrent(&mut context) });
        std::hint::black_box(context);
    }

    fn packed(&self, function: sys::CUfunction) {
        #[repr(C)]
        struct Params(Address, f32, u32);
        assert!(self.bytes >= LEN * 4, "too small to be scaled");
        let params = Params(self.x, 1.0, LEN as u32);
        let size = size_of::<Params>();
        // The driver's `CU_LAUNCH_PARAM_BUFFER_POINTER`, `.._SIZE` and `.._END`.
        let [pointer, bytes, end] = [1usize, 2, 0].map(|tag| tag as *mut c_void);
        let params = ptr::from_ref(&params) as *mut c_void;
        let mut extra = [pointer, params, bytes, ptr::from_ref(&size) as *mut c_void, end];
        self.launch(function, [LEN as u32 / 256, 256], [], extra.as_mut_ptr());
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
        // SAFETY: the callers pass the kernel's parameters: pointers to values that live until this returns, and
        // buffers that are large enough and never freed.
        let status = unsafe {
            sys::cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, self.stream, params, extra)
        };
        check(status);
    }

    /// Enqueues a copy from pinned memory to the device.
    pub fn upload(&self) {
        // SAFETY: both have that many bytes.
        check(unsafe { sys::cuMemcpyHtoDAsync_v2(self.x, self.host, self.bytes, self.stream) });
    }

    /// Enqueues a copy from the device to pinned memory.
    pub fn download(&self) {
        // SAFETY: both have that many bytes.
        check(unsafe { sys::cuMemcpyDtoHAsync_v2(self.host, self.x, self.bytes, self.stream) });
    }

    /// Copies ordinary memory to the device and waits.
    pub fn upload_from(&self, host: &[u8]) {
        let bytes = host.len().min(self.bytes);
        // SAFETY: both have that many bytes, and `host` lives until the stream is synchronized.
        check(unsafe {
            sys::cuMemcpyHtoDAsync_v2(self.x, host.as_ptr().cast(), bytes, self.stream)
        });
        self.synchronize();
    }

    /// Copies from the device to ordinary memory and waits.
    pub fn download_to(&self, host: &mut [u8]) {
        let (bytes, to) = (host.len().min(self.bytes), host.as_mut_ptr().cast());
        // SAFETY: both have that many bytes, and `host` lives until the stream is synchronized.
        check(unsafe { sys::cuMemcpyDtoHAsync_v2(to, self.x, bytes, self.stream) });
        self.synchronize();
    }

    /// Synchronizes the stream.
    pub fn synchronize(&self) {
        // SAFETY: the lane's stream is alive (see `on`).
        check(unsafe { sys::cuStreamSynchronize(self.stream) });
    }

    /// Queries the stream until it is idle.
    pub fn query_until_idle(&self) {
        loop {
            // SAFETY: the lane's stream is alive (see `on`).
            match unsafe { sys::cuStreamQuery(self.stream) } {
                sys::CUresult::CUDA_ERROR_NOT_READY => std::hint::spin_loop(),
                status => return check(status),
            }
        }
    }

    /// Creates an event without timing.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn event(&self) -> Result<Event, DriverError> {
        result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map(Event)
    }

    /// Records `event`.
    pub fn record(&self, event: &Event) {
        // SAFETY: stream and event belong to this context.
        check(unsafe { sys::cuEventRecord(event.0, self.stream) });
    }

    /// Makes later work on this stream wait for `event`.
    pub fn wait(&self, event: &Event) {
        // SAFETY: stream and event belong to this context.
        check(unsafe { sys::cuStreamWaitEvent(self.stream, event.0, 0) });
    }

    /// Allocates a word of host memory that this stream can write.
    ///
    /// # Errors
    /// The error of the driver.
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

    /// Enqueues a write of `value` after the work before it.
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

#[allow(clippy::panic)] // a failed benchmark has nothing to print
pub(crate) fn check(status: sys::CUresult) {
    if status != sys::CUresult::CUDA_SUCCESS {
        panic!("{status:?}");
    }
}
