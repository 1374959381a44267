use cuda_async::{DeviceBuffer, h2d, value, zeros};

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct Vectors;

    #[elements(n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len()) where x.len() == y.len();
}

fn not_a_buffer(vectors: &Vectors, y: DeviceBuffer<f32>) {
    let _ = vectors.saxpy(vec![1.0f32; 4], y, 1.0);
}

fn yields_no_buffer(vectors: &Vectors, y: DeviceBuffer<f32>) {
    let _ = vectors.saxpy(value(1.0f32), y, 1.0);
}

fn yields_another_type(vectors: &Vectors) {
    let _ = vectors.saxpy(zeros(4), h2d(vec![1.0f64; 4]), 1.0);
}

fn main() {
    let _ = (not_a_buffer, yields_no_buffer, yields_another_type);
}
