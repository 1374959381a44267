//! cuBLAS: matrix products.
//!
//! cuBLAS stores matrices in column-major order, and this library in row-major order. cuBLAS therefore sees the
//! transpose of each matrix, and the calls compute the transpose of the product: `c' = b' a'`.

use std::ffi::{c_int, c_longlong, c_void};

use cuda_core::{RawStream, Result};
use cudarc::cublas::{result, sys};
use parking_lot::Mutex;

use super::library::{Library, failed, has_cublas};

/// cuBLAS on a GPU.
pub(crate) static CUBLAS: Library<u32, Blas> =
    Library::new("cuBLAS", WARM_UP, has_cublas, |_| Blas::new());

/// The operation that opens the libraries for products, for errors.
pub(super) const WARM_UP: &str = "Tensor::<f32>::warm_up()";

/// The bytes of scratch memory of a call. NVIDIA recommends 32 MiB for Hopper, and less for other GPUs.
pub(crate) const WORKSPACE_BYTES: usize = 32 << 20;

/// The element type of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scalar {
    F16,
    Bf16,
    F32,
    F64,
}

impl Scalar {
    /// Returns the type with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "f16" => Some(Self::F16),
            "bf16" => Some(Self::Bf16),
            "f32" => Some(Self::F32),
            "f64" => Some(Self::F64),
            _ => None,
        }
    }

    fn data_type(self) -> sys::cudaDataType_t {
        match self {
            Self::F16 => sys::cudaDataType_t::CUDA_R_16F,
            Self::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
            Self::F32 => sys::cudaDataType_t::CUDA_R_32F,
            Self::F64 => sys::cudaDataType_t::CUDA_R_64F,
        }
    }

    /// Returns the type of the sums: f32 for the types of 16 bits, and the same type for the others.
    fn compute_type(self) -> sys::cublasComputeType_t {
        match self {
            Self::F16 | Self::Bf16 | Self::F32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            Self::F64 => sys::cublasComputeType_t::CUBLAS_COMPUTE_64F,
        }
    }
}

/// The layout of a matrix: row-major, or column-major.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Matrix {
    /// Whether the matrix is column-major.
    pub(crate) by_columns: bool,
    /// Elements from one row to the next, or from one column to the next if it is column-major.
    pub(crate) leading: i32,
    /// Elements from one matrix of the batch to the next.
    pub(crate) batch: i64,
}

/// A batch of products of `m x k` and `k x n` matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Gemm {
    pub(crate) scalar: Scalar,
    pub(crate) batch: i32,
    pub(crate) m: i32,
    pub(crate) n: i32,
    pub(crate) k: i32,
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
}

/// A handle of cuBLAS.
pub(crate) struct Blas(Mutex<Handle>);

struct Handle(sys::cublasHandle_t);

// SAFETY: cuBLAS allows every thread to use a handle, one at a time, which the mutex ensures.
unsafe impl Send for Handle {}

impl Blas {
    fn new() -> Result<Self> {
        let handle = result::create_handle().map_err(failure("cublasCreate"))?;
        Ok(Self(Mutex::new(Handle(handle))))
    }

    /// Enqueues the products. `addresses` are those of a, b, c and the scratch memory.
    ///
    /// # Safety
    /// The context of the GPU is current. The memory is valid for the shapes, and nothing else uses c and the scratch
    /// memory until the stream has passed the call.
    pub(crate) unsafe fn gemm(&self, gemm: &Gemm, raw: RawStream, addresses: &[u64]) -> Result<()> {
        let [a, b, c, workspace] = *addresses else { return Err(cuda_core::Error::AlreadyEnded) };
        let handle = self.0.lock();
        // SAFETY: the handle is locked and never destroyed; the stream and the scratch memory are valid.
        unsafe {
            result::set_stream(handle.0, raw.stream.cast()).map_err(failure("cublasSetStream"))?;
            let set = sys::cublasSetWorkspace_v2(handle.0, pointer(workspace), WORKSPACE_BYTES);
            set.result().map_err(failure("cublasSetWorkspace"))?;
        }
        let (one, zero) = Scalars::of(gemm.scalar);
        let operation = |matrix: &Matrix| match matrix.by_columns {
            true => sys::cublasOperation_t::CUBLAS_OP_T,
            false => sys::cublasOperation_t::CUBLAS_OP_N,
        };
        let (of_type, compute) = (gemm.scalar.data_type(), gemm.scalar.compute_type());
        let algorithm = sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT;
        let (alpha, beta) = (one.pointer(), zero.pointer());
        let c_batch = c_longlong::from(gemm.m) * c_longlong::from(gemm.n);
        // SAFETY: the memory is valid for the shapes, and nothing else uses c and the scratch memory until the stream
        // has passed the call. The two numbers live during the call, and are read from the host, which is the mode of a
        // new handle.
        let called = unsafe {
            if gemm.batch == 1 {
                result::gemm_ex(
                    handle.0,
                    operation(&gemm.b),
                    operation(&gemm.a),
                    gemm.n,
                    gemm.m,
                    gemm.k,
                    alpha,
                    pointer(b),
                    of_type,
                    gemm.b.leading,
                    pointer(a),
                    of_type,
                    gemm.a.leading,
                    beta,
                    pointer(c),
                    of_type,
                    gemm.n,
                    compute,
                    algorithm,
                )
            } else {
                result::gemm_strided_batched_ex(
                    handle.0,
                    operation(&gemm.b),
                    operation(&gemm.a),
                    gemm.n,
                    gemm.m,
                    gemm.k,
                    alpha,
                    pointer(b),
                    of_type,
                    gemm.b.leading,
                    gemm.b.batch,
                    pointer(a),
                    of_type,
                    gemm.a.leading,
                    gemm.a.batch,
                    beta,
                    pointer(c),
                    of_type,
                    gemm.n,
                    c_batch,
                    gemm.batch as c_int,
                    compute,
                    algorithm,
                )
            }
        };
        called.map_err(failure("cublasGemmEx"))
    }
}

/// A factor of a product, in the type in which the sums are computed.
pub(super) enum Scalars {
    F32(f32),
    F64(f64),
}

impl Scalars {
    /// Returns 1 and 0.
    pub(super) fn of(scalar: Scalar) -> (Self, Self) {
        match scalar {
            Scalar::F16 | Scalar::Bf16 | Scalar::F32 => (Self::F32(1.0), Self::F32(0.0)),
            Scalar::F64 => (Self::F64(1.0), Self::F64(0.0)),
        }
    }

    pub(super) fn pointer(&self) -> *const c_void {
        match self {
            Self::F32(number) => std::ptr::from_ref(number).cast(),
            Self::F64(number) => std::ptr::from_ref(number).cast(),
        }
    }
}

/// Returns the pointer to device memory, which no code on the host dereferences.
pub(super) fn pointer<T>(address: u64) -> *mut T {
    std::ptr::without_provenance_mut(address as usize)
}

fn failure(call: &'static str) -> impl FnOnce(result::CublasError) -> cuda_core::Error {
    move |error| failed("cuBLAS", call)(format!("{:?}", error.0))
}
