use cuda_async::{DeviceBuffer, memory::fill};

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct Vectors;

    #[elements(n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len()) where x.len() == y.len();
}

fn borrowed(vectors: &Vectors, mut y: DeviceBuffer<f32>) {
    let _ = vectors.saxpy(&y, &mut y, 1.0);
}

fn lazy(vectors: &Vectors, mut y: DeviceBuffer<f32>) {
    let _ = vectors.saxpy(&y, fill(&mut y, 1.0), 1.0);
}

fn moved(vectors: &Vectors, y: DeviceBuffer<f32>) {
    let _ = vectors.saxpy(y.as_slice(), y, 1.0);
}

fn main() {
    let _ = (borrowed, lazy, moved);
}
