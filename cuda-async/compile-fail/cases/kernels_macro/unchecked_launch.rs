use cuda_async::{DeviceBuffer, LaunchConfig};

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub struct Vectors;

    #[elements(n)]
    unsafe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len()) where x.len() == y.len();
}

fn run(vectors: &Vectors, x: DeviceBuffer<f32>, y: DeviceBuffer<f32>) {
    let _ = vectors.saxpy(x, y, 1.0);
}

fn with_config(vectors: &Vectors, x: DeviceBuffer<f32>, y: DeviceBuffer<f32>) {
    let _ = unsafe { vectors.saxpy(LaunchConfig::new(1, 1), x, y, 1.0) };
}

fn main() {
    let _ = (run, with_config);
}
