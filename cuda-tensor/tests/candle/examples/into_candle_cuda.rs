use cuda_async::prelude::*;
use cuda_tensor::{Tensor, TensorOps};

pub fn double() -> Result<(), Box<dyn std::error::Error>> {
    let device = candle_core::Device::new_cuda(0)?;
    let x = Tensor::from_host(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2]).mul_scalar(2.0);
    let theirs = x.then(move |x| x.into_candle_cuda(&device)).sync()?;
    assert_eq!(theirs.to_vec2::<f32>()?, [[2.0, 4.0], [6.0, 8.0]]);
    Ok(())
}
