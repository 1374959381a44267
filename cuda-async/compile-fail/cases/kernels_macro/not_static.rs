use cuda_async::{DeviceBuffer, DeviceOp, LaunchConfig};

cuda_async::kernels! {
    #[ptx = "../kernels/vecadd.ptx"]
    pub struct Vectors;

    unsafe fn vecadd(a: &[f32], b: &[f32], c: &mut [f32], n: u32);
}

fn spawn<F: IntoFuture<IntoFuture: Send + 'static>>(_: F) {}

fn run(vectors: &Vectors, a: DeviceBuffer<f32>, b: DeviceBuffer<f32>, mut c: DeviceBuffer<f32>) {
    let config = LaunchConfig::for_num_elems(1);
    // The struct is not borrowed, the buffer is.
    spawn(unsafe { vectors.vecadd(config, a, b, &mut c, 1) }.map(drop));
}

fn main() {
    let _ = run;
}
