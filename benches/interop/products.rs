//! Products of matrices with cuBLAS.

use std::{error::Error, ffi::c_void, sync::Arc};

use benches::{Effort, Way, done, medians};
use cuda_async::{Device, in_order, prelude::*};
use cuda_tensor::{SharedTensor, Tensor, TensorOps, bf16};
use cudarc::{
    cublas::{result, sys},
    driver::{CudaContext, CudaSlice, CudaStream, DevicePtr},
};

use crate::print;

/// The rows and columns of the matrices.
const SIZE: usize = 4096;
/// Products in one measurement of a sequence.
const IN_SEQUENCE: usize = 20;
const EFFORT: Effort = Effort { rounds: 9, in_a_row: 20 };
const WORKSPACE: usize = 32 << 20;

/// Measures one product, and a sequence of them.
pub fn run(device: &Device) -> Result<(), Box<dyn Error>> {
    let stream = device.new_stream()?;
    let made = |seed| Tensor::from_host(random(seed), [SIZE, SIZE]).sync_on(&stream);
    let (a, b) = (made(1)?.into_shared(), made(2)?.into_shared());
    let raw = Raw::new()?;
    let product = |a: &SharedTensor<bf16>, b: &SharedTensor<bf16>| a.clone().matmul(b.clone());
    let one = medians(
        &mut [
            Way::new("", || raw.products(1)),
            Way::new("", || drop(done(product(&a, &b).sync_on(&stream)))),
        ],
        EFFORT,
    );
    print("one product, 4096 x 4096 x 4096, bf16", &["cuBLAS", "`matmul`"], &one);
    let sequence = medians(
        &mut [
            Way::new("", || raw.products(IN_SEQUENCE)),
            Way::new("", || {
                let ops: Vec<_> = (0..IN_SEQUENCE).map(|_| product(&a, &b).map(drop)).collect();
                done(in_order(ops).sync_on(&stream));
            }),
        ],
        EFFORT,
    );
    let each: Vec<_> = sequence.iter().map(|time| time / IN_SEQUENCE as f64).collect();
    print("a product of a sequence of 20", &["cuBLAS", "`matmul`"], &each);
    let flops = 2.0 * (SIZE as f64).powi(3);
    println!("\n{:.0} TFLOP/s in the sequence of `matmul`", flops / each[1] / 1e6);
    Ok(())
}

/// Small numbers of both signs. The speed of a product depends on its numbers.
fn random(seed: u64) -> Vec<bf16> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bf16::from_f32((state >> 40) as f32 / (1u32 << 22) as f32 - 2.0)
    };
    std::iter::repeat_with(next).take(SIZE * SIZE).collect()
}

/// The raw calls, on the same numbers.
struct Raw {
    stream: Arc<CudaStream>,
    handle: sys::cublasHandle_t,
    /// a, b and the product.
    matrices: [CudaSlice<u16>; 3],
    scratch: CudaSlice<u8>,
}

impl Raw {
    fn new() -> Result<Self, Box<dyn Error>> {
        let stream = CudaContext::new(0)?.new_stream()?;
        let handle = result::create_handle()?;
        let bits = |seed| random(seed).into_iter().map(bf16::to_bits).collect::<Vec<_>>();
        let (a, b) = (stream.clone_htod(&bits(1))?, stream.clone_htod(&bits(2))?);
        let matrices = [a, b, stream.alloc_zeros(SIZE * SIZE)?];
        let scratch = stream.alloc_zeros(WORKSPACE)?;
        Ok(Self { stream, handle, matrices, scratch })
    }

    /// Runs products and waits for them.
    fn products(&self, count: usize) {
        let [a, b, c] = self.matrices.each_ref().map(|matrix| matrix.device_ptr(&self.stream).0);
        let scratch = self.scratch.device_ptr(&self.stream).0;
        let pointer = |address: u64| address as *mut c_void;
        let (one, zero) = (1.0f32, 0.0f32);
        let (size, bf16) = (SIZE as i32, sys::cudaDataType_t::CUDA_R_16BF);
        let none = sys::cublasOperation_t::CUBLAS_OP_N;
        for _ in 0..count {
            // SAFETY: the memory has the sizes of the matrices.
            unsafe {
                done(result::set_stream(self.handle, self.stream.cu_stream().cast()));
                let set = sys::cublasSetWorkspace_v2(self.handle, pointer(scratch), WORKSPACE);
                done(set.result());
                done(result::gemm_ex(
                    self.handle,
                    none,
                    none,
                    size,
                    size,
                    size,
                    (&raw const one).cast(),
                    pointer(b),
                    bf16,
                    size,
                    pointer(a),
                    bf16,
                    size,
                    (&raw const zero).cast(),
                    pointer(c),
                    bf16,
                    size,
                    sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                    sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
                ));
            }
        }
        done(self.stream.synchronize());
    }
}
