//! Products of matrices with cuBLAS.

use std::{error::Error, ffi::c_void, sync::Arc};

use benches::{Effort, Way, done, medians};
use cuda_async::{
    Device, in_order,
    prelude::*,
    tensor::{SharedTensor, Tensor, TensorOps, bf16},
};
use cudarc::{
    cublas::{result, sys},
    driver::{CudaContext, CudaStream, DevicePtr},
};

use crate::print;

/// The rows and columns of the matrices.
const SIZE: usize = 4096;
/// Products in one measurement of a sequence.
const IN_SEQUENCE: usize = 20;
const EFFORT: Effort = Effort { rounds: 9, in_a_row: 3 };
const WORKSPACE: usize = 32 << 20;

/// Measures one product, and a sequence of them.
pub fn run(device: &Device) -> Result<(), Box<dyn Error>> {
    let stream = device.new_stream()?;
    let made = |seed| Tensor::<f32>::randn([SIZE, SIZE], seed).cast::<bf16>().sync_on(&stream);
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
    let each: Vec<_> = sequence.iter().map(|it| it / IN_SEQUENCE as f64).collect();
    print("a product of a sequence of 20", &["cuBLAS", "`matmul`"], &each);
    let flops = 2.0 * (SIZE as f64).powi(3);
    println!("\n{:.0} TFLOP/s in the sequence of `matmul`", flops / each[1] / 1e6);
    Ok(())
}

/// The raw calls, on random numbers of the same kind.
struct Raw {
    stream: Arc<CudaStream>,
    handle: sys::cublasHandle_t,
    /// a, b, the product and the scratch memory.
    memory: [cudarc::driver::CudaSlice<u8>; 4],
}

impl Raw {
    fn new() -> Result<Self, Box<dyn Error>> {
        let stream = CudaContext::new(0)?.new_stream()?;
        let handle = result::create_handle()?;
        // Small numbers of both signs, because the speed depends on the bits.
        let random = |seed: u64| {
            let mut state = seed;
            let next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let uniform = (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
                bf16::from_f32(2.0 * uniform).to_bits().to_le_bytes()
            };
            std::iter::repeat_with(next).take(SIZE * SIZE).flatten().collect::<Vec<u8>>()
        };
        let memory = [
            stream.clone_htod(&random(1))?,
            stream.clone_htod(&random(2))?,
            stream.alloc_zeros(2 * SIZE * SIZE)?,
            stream.alloc_zeros(WORKSPACE)?,
        ];
        Ok(Self { stream, handle, memory })
    }

    /// Runs products and waits for them.
    fn products(&self, count: usize) {
        let [a, b, c, scratch] = self.memory.each_ref().map(|it| it.device_ptr(&self.stream).0);
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
