//! The examples of the documentation. They are not doctests, because those would link CUDA's libraries.

mod from_candle_cuda;
mod into_candle_cuda;

use crate::gpu::gpus;

#[test]
fn examples_of_the_documentation_run() {
    if !gpus().is_empty() {
        from_candle_cuda::double().unwrap();
        into_candle_cuda::double().unwrap();
    }
}
