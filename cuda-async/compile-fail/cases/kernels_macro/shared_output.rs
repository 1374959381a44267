use std::sync::Arc;

use cuda_async::{DeviceBuffer, LaunchConfig};

cuda_async::kernels! {
    #[ptx = "../kernels/vecadd.ptx"]
    pub struct Vectors;

    unsafe fn vecadd(a: &[f32], b: &[f32], c: &mut [f32], n: u32);
}

fn run(vectors: &Vectors, a: DeviceBuffer<f32>, b: DeviceBuffer<f64>, c: Arc<DeviceBuffer<f32>>) {
    let config = LaunchConfig::for_num_elems(1);
    let _ = unsafe { vectors.vecadd(config, a, b, c, 1) };
}

fn main() {
    let _ = run;
}
