use cuda_async::prelude::*;
use cuda_tensor::{SharedTensor, TensorOps};

pub fn double() -> Result<(), Box<dyn std::error::Error>> {
    let device = candle_core::Device::new_cuda(0)?;
    let theirs = candle_core::Tensor::new(&[[1.0f32, 2.0], [3.0, 4.0]], &device)?;
    // SAFETY: no code writes the elements of `theirs`.
    let x = unsafe { SharedTensor::<f32>::from_candle_cuda(theirs.t()?) };
    assert_eq!(x.mul_scalar(2.0).to_host_vec().sync()?, [2.0, 6.0, 4.0, 8.0]);
    Ok(())
}
