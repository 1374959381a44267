//! cuFFT: discrete Fourier transforms of complex numbers.

use std::ffi::c_longlong;

use cuda_core::{Error, RawStream, Result};
use cudarc::cufft::{result, sys};
use parking_lot::Mutex;

use super::{
    cublas::pointer,
    library::{Library, failed, has_cufft},
};

// With `candle-cuda`, cudarc's build script links the libraries, but has no line for cuFFT.
#[cfg(feature = "candle-cuda")]
#[link(name = "cufft")]
unsafe extern "C" {}

/// The plans of cuFFT. A plan is made once for each GPU and shape.
pub(crate) static CUFFT: Library<Shape, Plan> =
    Library::new("cuFFT", "the transform of a tensor of this shape", has_cufft, Plan::new);

/// A batch of transforms of `n` complex numbers on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) gpu: u32,
    pub(crate) n: i64,
    pub(crate) batch: i64,
    /// Whether the numbers are f64, else f32.
    pub(crate) double: bool,
}

/// A plan of cuFFT.
pub(crate) struct Plan {
    handle: Mutex<sys::cufftHandle>,
    double: bool,
    /// The bytes of scratch memory of a call.
    workspace: usize,
}

impl Plan {
    fn new(shape: &Shape) -> Result<Self> {
        let handle = result::create().map_err(failure("cufftCreate"))?;
        let (n, kind) = (
            &mut [shape.n as c_longlong],
            if shape.double { sys::cufftType::CUFFT_Z2Z } else { sys::cufftType::CUFFT_C2C },
        );
        let null = std::ptr::null_mut();
        // SAFETY: the plan is new. Without embeddings, the numbers of a transform are neighbors.
        let planned = unsafe {
            result::set_auto_allocation(handle, false).and_then(|()| {
                result::make_plan_many64(
                    handle,
                    1,
                    n.as_mut_ptr(),
                    null,
                    1,
                    shape.n,
                    null,
                    1,
                    shape.n,
                    kind,
                    shape.batch,
                )
            })
        };
        let workspace = planned.map_err(|error| {
            // SAFETY: the plan was created above and is used by no call.
            _ = unsafe { result::destroy(handle) };
            failure("cufftMakePlanMany64")(error)
        })?;
        Ok(Self { handle: Mutex::new(handle), double: shape.double, workspace })
    }

    /// Returns the bytes of scratch memory of a call.
    pub(crate) fn workspace(&self) -> usize {
        self.workspace
    }

    /// Enqueues the transforms, or the inverse ones without their factor. `addresses` are those of the source, the
    /// target and the scratch memory.
    ///
    /// # Safety
    /// The context of the GPU is current. The memory is valid for the shape, and nothing else uses the target and the
    /// scratch memory until the stream has passed the call.
    pub(crate) unsafe fn run(
        &self,
        inverse: bool,
        raw: RawStream,
        addresses: &[u64],
    ) -> Result<bool> {
        let [from, to, workspace] = *addresses else { return Err(Error::AlreadyEnded) };
        // The library loads complex numbers. A view of a tensor may begin at any element.
        let alignment = if self.double { 16 } else { 8 };
        if from % alignment != 0 || to % alignment != 0 {
            return Ok(false);
        }
        let direction = if inverse { 1 } else { -1 };
        let handle = self.handle.lock();
        // SAFETY: the memory is valid for the shape, and nothing else uses the target and the scratch memory until the
        // stream has passed the call.
        unsafe {
            result::set_stream(*handle, raw.stream.cast()).map_err(failure("cufftSetStream"))?;
            result::set_work_area(*handle, pointer(workspace))
                .map_err(failure("cufftSetWorkArea"))?;
            if self.double {
                result::exec_z2z(*handle, pointer(from), pointer(to), direction)
                    .map_err(failure("cufftExecZ2Z"))?;
            } else {
                result::exec_c2c(*handle, pointer(from), pointer(to), direction)
                    .map_err(failure("cufftExecC2C"))?;
            }
        }
        Ok(true)
    }
}

fn failure(call: &'static str) -> impl FnOnce(result::CufftError) -> Error {
    move |error| failed("cuFFT", call)(format!("{:?}", error.0))
}
