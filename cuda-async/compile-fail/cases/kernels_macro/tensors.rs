use cuda_tensor::{Tensor, TensorOps};

use cuda_async::DeviceOp;

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct Vectors;

    #[elements(n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len()) where x.len() == y.len();
}

fn spawn<F: IntoFuture<IntoFuture: Send + 'static>>(_: F) {}

fn input_and_output(vectors: &Vectors, mut y: Tensor<f32>) {
    let _ = vectors.saxpy(&y, &mut y, 1.0);
}

fn spawned(vectors: &Vectors, y: Tensor<f32>) {
    spawn(vectors.saxpy(Tensor::ones(4), y.view().dup(), 1.0).map(drop));
}

fn main() {
    let _ = (input_and_output, spawned);
}
