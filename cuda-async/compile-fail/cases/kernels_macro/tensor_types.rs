use std::sync::Arc;

use cuda_tensor::{Tensor, TensorOps};

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct Vectors;

    #[elements(n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len()) where x.len() == y.len();
}

fn shared_output(vectors: &Vectors, x: Tensor<f32>, y: Arc<Tensor<f32>>) {
    let _ = vectors.saxpy(x, y, 1.0);
}

fn other_element(vectors: &Vectors, x: Tensor<f64>, y: Tensor<f32>) {
    let _ = vectors.saxpy(x, y, 1.0);
}

fn softmax_of_integers(x: Tensor<i32>) {
    let _ = x.softmax(0);
}

fn sum_of_bools(x: Tensor<bool>) {
    let _ = x.sum();
}

fn other_types(x: Tensor<f32>, y: Tensor<f64>) {
    let _ = x.add(y);
}

fn main() {}
