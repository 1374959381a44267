//! The driver's side: the same kernel, launched by plain driver calls.
//!
//! # Rules
//! Everything here is used by one thread, whose current context is the one that [`Raw::new`] made current.

use std::{ffi::c_void, ptr};

use cudarc::driver::{
    CudaContext,
    result::{self, DriverError},
    sys,
};

use crate::LEN;

pub struct Raw {
    function: sys::CUfunction,
    stream: sys::CUstream,
    x: sys::CUdeviceptr,
    host: *mut c_void,
}

impl Raw {
    pub fn new() -> Result<Self, DriverError> {
        let context = CudaContext::new(0)?;
        context.bind_to_thread()?;
        // The context lives as long as the process.
        std::mem::forget(context);
        let ptx = concat!(include_str!("../../kernels/basic.ptx"), "\0");
        // SAFETY: the text ends in a NUL byte; the handles are used while the context is current; the
        // allocations have the sizes that are used below.
        unsafe {
            let module = result::module::load_data(ptx.as_ptr().cast())?;
            let function = result::module::get_function(module, c"scale".to_owned())?;
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
            let x = result::malloc_sync(LEN * 4)?;
            let host = result::malloc_host(LEN * 4, 0)?;
            result::memset_d8_sync(x, 0, LEN * 4)?;
            Ok(Self { function, stream, x, host })
        }
    }

    pub fn launch(&self) {
        let (x, factor, n) = (self.x, 1.0f32, LEN as u32);
        let mut params: [*mut c_void; 3] =
            [ptr::from_ref(&x) as _, ptr::from_ref(&factor) as _, ptr::from_ref(&n) as _];
        // SAFETY: the kernel takes a pointer, a float and a count, and stays inside the buffer.
        let status = unsafe {
            let (grid, params) = (LEN as u32 / 256, params.as_mut_ptr());
            sys::cuLaunchKernel(
                self.function,
                grid,
                1,
                1,
                256,
                1,
                1,
                0,
                self.stream,
                params,
                ptr::null_mut(),
            )
        };
        check(status);
    }

    /// The same with the parameters in one buffer, as a library has them that does not know the kernel.
    pub fn launch_packed(&self) {
        #[repr(C)]
        struct Params(sys::CUdeviceptr, f32, u32);
        let params = Params(self.x, 1.0, LEN as u32);
        let size = size_of::<Params>();
        // The driver's `CU_LAUNCH_PARAM_BUFFER_POINTER`, `.._SIZE` and `.._END`.
        let [pointer, bytes, end] = [1usize, 2, 0].map(|tag| tag as *mut c_void);
        let params = ptr::from_ref(&params) as *mut c_void;
        let mut extra = [pointer, params, bytes, ptr::from_ref(&size) as *mut c_void, end];
        // SAFETY: as above; the buffer is laid out as the kernel's parameters are.
        let status = unsafe {
            let (grid, extra) = (LEN as u32 / 256, extra.as_mut_ptr());
            sys::cuLaunchKernel(
                self.function,
                grid,
                1,
                1,
                256,
                1,
                1,
                0,
                self.stream,
                ptr::null_mut(),
                extra,
            )
        };
        check(status);
    }

    pub fn download(&self) {
        // SAFETY: both have `LEN * 4` bytes and live as long as the process.
        check(unsafe { sys::cuMemcpyDtoHAsync_v2(self.host, self.x, LEN * 4, self.stream) });
    }

    pub fn synchronize(&self) {
        // SAFETY: the stream is this value's own.
        check(unsafe { sys::cuStreamSynchronize(self.stream) });
    }
}

#[allow(clippy::panic)] // a benchmark that fails has nothing to print
fn check(status: sys::CUresult) {
    if status != sys::CUresult::CUDA_SUCCESS {
        panic!("{status:?}");
    }
}
