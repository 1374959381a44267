use cuda_async::{DeviceBuffer, DeviceOp, memory::fill, zeros};

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct Vectors;

    #[elements(n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len()) where x.len() == y.len();
}

fn spawn<F: IntoFuture<IntoFuture: Send + 'static>>(_: F) {}

fn run(vectors: &Vectors, mut y: DeviceBuffer<f32>) {
    // The operation that yields the borrow is lazy, and borrows as the buffer itself does.
    spawn(vectors.saxpy(zeros(4), fill(&mut y, 1.0), 1.0).map(drop));
}

fn main() {
    let _ = run;
}
