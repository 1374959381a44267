//! cuBLASLt: matrix products that add a bias to each row and apply a function, in one pass.

use std::{collections::HashMap, ffi::c_void, ptr::from_ref};

use cuda_core::{Error, RawStream, Result};
use cudarc::cublaslt::{result, sys};
use parking_lot::Mutex;

use super::{
    cublas::{self, Gemm, Matrix, Scalar, Scalars, WORKSPACE_BYTES, pointer},
    library::{Library, failed, has_cublaslt},
};

/// cuBLASLt on a GPU.
pub(crate) static CUBLASLT: Library<u32, BlasLt> =
    Library::new("cuBLASLt", cublas::WARM_UP, has_cublaslt, |_| BlasLt::new());

/// The maximum number of products whose algorithm is remembered.
const MAX_ALGORITHMS: usize = 1024;

/// The longest load of the library's kernels, in bytes.
const BIAS_ALIGNMENT: u64 = 16;

/// The step between the product and the store of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Epilogue {
    pub(crate) has_bias: bool,
    pub(crate) function: Function,
}

/// A function of each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Identity,
    Relu,
    Gelu,
}

impl Epilogue {
    fn raw(self) -> sys::cublasLtEpilogue_t {
        use sys::cublasLtEpilogue_t as E;
        match (self.has_bias, self.function) {
            (false, Function::Identity) => E::CUBLASLT_EPILOGUE_DEFAULT,
            (false, Function::Relu) => E::CUBLASLT_EPILOGUE_RELU,
            (false, Function::Gelu) => E::CUBLASLT_EPILOGUE_GELU,
            (true, Function::Identity) => E::CUBLASLT_EPILOGUE_BIAS,
            (true, Function::Relu) => E::CUBLASLT_EPILOGUE_RELU_BIAS,
            (true, Function::Gelu) => E::CUBLASLT_EPILOGUE_GELU_BIAS,
        }
    }
}

/// A handle of cuBLASLt.
pub(crate) struct BlasLt {
    handle: Handle,
    /// The algorithms that the library chose.
    algorithms: Mutex<HashMap<Key, sys::cublasLtMatmulAlgo_t>>,
}

struct Handle(sys::cublasLtHandle_t);

// SAFETY: cuBLASLt is thread-safe, and a handle may be used by several threads at a time.
unsafe impl Send for Handle {}
// SAFETY: cuBLASLt is thread-safe, and a handle may be used by several threads at a time.
unsafe impl Sync for Handle {}

/// Everything that the choice of an algorithm depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    gemm: Gemm,
    epilogue: Epilogue,
    /// The alignments of a, b and c in bytes, 256 at most.
    alignments: [u32; 3],
}

impl BlasLt {
    fn new() -> Result<Self> {
        let handle = result::create_handle().map_err(failure("cublasLtCreate"))?;
        Ok(Self { handle: Handle(handle), algorithms: Mutex::default() })
    }

    /// Enqueues the products. `addresses` are those of a, b, c, the scratch memory and the bias, if there is one.
    /// Returns false if the library has no algorithm for them.
    ///
    /// # Safety
    /// The requirements of [`Blas::gemm`](super::cublas::Blas::gemm). The bias has `n` elements.
    pub(crate) unsafe fn gemm(
        &self,
        gemm: &Gemm,
        epilogue: Epilogue,
        raw: RawStream,
        addresses: &[u64],
    ) -> Result<bool> {
        let [a, b, c, workspace, ref bias @ ..] = *addresses else {
            return Err(Error::AlreadyEnded);
        };
        // The library assumes that a bias is aligned. A view of a tensor may begin at any element.
        if bias.first().is_some_and(|address| address % BIAS_ALIGNMENT != 0) {
            return Ok(false);
        }
        let description = Description::new(gemm.scalar)?;
        description.set_operations(gemm)?;
        description.set_epilogue(epilogue, bias.first().copied())?;
        let of_b = Layout::of(gemm.scalar, gemm.n, gemm.k, &gemm.b, gemm.batch)?;
        let of_a = Layout::of(gemm.scalar, gemm.k, gemm.m, &gemm.a, gemm.batch)?;
        let product = i64::from(gemm.m) * i64::from(gemm.n);
        let by_rows = Matrix { by_columns: false, leading: gemm.n, batch: product };
        let of_c = Layout::of(gemm.scalar, gemm.n, gemm.m, &by_rows, gemm.batch)?;
        let alignments = [a, b, c].map(|address| 1 << address.trailing_zeros().min(8));
        let key = Key { gemm: *gemm, epilogue, alignments };
        let known = self.algorithms.lock().get(&key).copied();
        let algorithm = match known {
            Some(algorithm) => algorithm,
            None => match self.choose(&description, [&of_b, &of_a, &of_c], alignments)? {
                Some(algorithm) => {
                    let mut algorithms = self.algorithms.lock();
                    if algorithms.len() >= MAX_ALGORITHMS {
                        algorithms.clear();
                    }
                    algorithms.insert(key, algorithm);
                    algorithm
                }
                None => return Ok(false),
            },
        };
        let (one, zero) = Scalars::of(gemm.scalar);
        // SAFETY: the memory is valid for the shapes, and nothing else uses c and the scratch memory until the stream
        // has passed the call. The descriptions and the two numbers live during the call.
        let called = unsafe {
            result::matmul(
                self.handle.0,
                description.0,
                one.pointer(),
                zero.pointer(),
                pointer(b),
                of_b.0,
                pointer(a),
                of_a.0,
                pointer(c),
                of_c.0,
                pointer(c),
                of_c.0,
                from_ref(&algorithm),
                pointer(workspace),
                WORKSPACE_BYTES,
                raw.stream.cast(),
            )
        };
        called.map_err(failure("cublasLtMatmul"))?;
        Ok(true)
    }

    /// Asks the library for the fastest algorithm. Returns `None` if it has no algorithm.
    fn choose(
        &self,
        description: &Description,
        [b, a, c]: [&Layout; 3],
        alignments: [u32; 3],
    ) -> Result<Option<sys::cublasLtMatmulAlgo_t>> {
        use sys::cublasLtMatmulPreferenceAttributes_t as P;
        let preference = Preference::new()?;
        preference.set(P::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE_BYTES)?;
        let [of_a, of_b, of_c] = alignments;
        // The calls compute the transpose, so the library's first matrix is b.
        preference.set(P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &of_b)?;
        preference.set(P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &of_a)?;
        preference.set(P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &of_c)?;
        preference.set(P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &of_c)?;
        // SAFETY: the descriptions live during the call.
        let chosen = unsafe {
            result::get_matmul_algo_heuristic(
                self.handle.0,
                description.0,
                b.0,
                a.0,
                c.0,
                c.0,
                preference.0,
            )
        };
        match chosen {
            Ok(chosen) => Ok(Some(chosen.algo)),
            Err(result::CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)) => Ok(None),
            Err(error) => Err(failure("cublasLtMatmulAlgoGetHeuristic")(error)),
        }
    }
}

/// The description of a product.
struct Description(sys::cublasLtMatmulDesc_t);

impl Description {
    fn new(scalar: Scalar) -> Result<Self> {
        use sys::{cublasComputeType_t as Compute, cudaDataType_t as Type};
        let (compute, of_factors) = match scalar {
            Scalar::F16 | Scalar::Bf16 | Scalar::F32 => {
                (Compute::CUBLAS_COMPUTE_32F, Type::CUDA_R_32F)
            }
            Scalar::F64 => (Compute::CUBLAS_COMPUTE_64F, Type::CUDA_R_64F),
        };
        let description = result::create_matmul_desc(compute, of_factors);
        description.map(Self).map_err(failure("cublasLtMatmulDescCreate"))
    }

    fn set_operations(&self, gemm: &Gemm) -> Result<()> {
        use sys::cublasLtMatmulDescAttributes_t as A;
        // 0 is `CUBLAS_OP_N`, and 1 is `CUBLAS_OP_T`.
        let (of_b, of_a) = (i32::from(gemm.b.by_columns), i32::from(gemm.a.by_columns));
        self.set(A::CUBLASLT_MATMUL_DESC_TRANSA, &of_b)?;
        self.set(A::CUBLASLT_MATMUL_DESC_TRANSB, &of_a)
    }

    fn set_epilogue(&self, epilogue: Epilogue, bias: Option<u64>) -> Result<()> {
        use sys::cublasLtMatmulDescAttributes_t as A;
        self.set(A::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue.raw())?;
        match bias.filter(|_| epilogue.has_bias) {
            Some(bias) => self.set(A::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias),
            None => Ok(()),
        }
    }

    fn set<V>(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: &V) -> Result<()> {
        let value = from_ref(value).cast::<c_void>();
        // SAFETY: the library copies a value of this size, which is that of the attribute.
        unsafe { result::set_matmul_desc_attribute(self.0, attribute, value, size_of::<V>()) }
            .map_err(failure("cublasLtMatmulDescSetAttribute"))
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: created by this value, and used by no call any more.
        _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// The description of a batch of matrices.
struct Layout(sys::cublasLtMatrixLayout_t);

impl Layout {
    /// The layout of a matrix of `columns` elements in each of its rows, as the library sees it: the transpose.
    fn of(scalar: Scalar, columns: i32, rows: i32, matrix: &Matrix, batch: i32) -> Result<Self> {
        use sys::{cublasLtMatrixLayoutAttribute_t as A, cudaDataType_t as Type};
        let of_type = match scalar {
            Scalar::F16 => Type::CUDA_R_16F,
            Scalar::Bf16 => Type::CUDA_R_16BF,
            Scalar::F32 => Type::CUDA_R_32F,
            Scalar::F64 => Type::CUDA_R_64F,
        };
        let (high, wide) = if matrix.by_columns { (rows, columns) } else { (columns, rows) };
        let layout = result::create_matrix_layout(
            of_type,
            high.unsigned_abs().into(),
            wide.unsigned_abs().into(),
            matrix.leading.into(),
        );
        let layout = Self(layout.map_err(failure("cublasLtMatrixLayoutCreate"))?);
        if batch > 1 {
            layout.set(A::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch)?;
            layout.set(A::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &matrix.batch)?;
        }
        Ok(layout)
    }

    fn set<V>(&self, attribute: sys::cublasLtMatrixLayoutAttribute_t, value: &V) -> Result<()> {
        let value = from_ref(value).cast::<c_void>();
        // SAFETY: the library copies a value of this size, which is that of the attribute.
        unsafe { result::set_matrix_layout_attribute(self.0, attribute, value, size_of::<V>()) }
            .map_err(failure("cublasLtMatrixLayoutSetAttribute"))
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: created by this value, and used by no call any more.
        _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

/// The limits of an algorithm.
struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn new() -> Result<Self> {
        result::create_matmul_pref().map(Self).map_err(failure("cublasLtMatmulPreferenceCreate"))
    }

    fn set<V>(
        &self,
        attribute: sys::cublasLtMatmulPreferenceAttributes_t,
        value: &V,
    ) -> Result<()> {
        let value = from_ref(value).cast::<c_void>();
        // SAFETY: the library copies a value of this size, which is that of the attribute.
        unsafe { result::set_matmul_pref_attribute(self.0, attribute, value, size_of::<V>()) }
            .map_err(failure("cublasLtMatmulPreferenceSetAttribute"))
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: created by this value, and used by no call any more.
        _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

fn failure(call: &'static str) -> impl FnOnce(result::CublasError) -> Error {
    move |error| failed("cuBLASLt", call)(format!("{:?}", error.0))
}
