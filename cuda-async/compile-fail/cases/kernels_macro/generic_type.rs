use cuda_async::DeviceBuffer;

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct Vectors;

    #[entry(f32 = "saxpy", f64 = "daxpy")]
    #[elements(n)]
    safe fn axpy<T: f32 | f64>(x: &[T], y: &mut [T], a: T, n: u32 = y.len()) where x.len() == y.len();
}

fn integers(vectors: &Vectors, x: DeviceBuffer<u32>, y: DeviceBuffer<u32>) {
    let _ = vectors.axpy(x, y, 1);
}

fn mixed(vectors: &Vectors, x: DeviceBuffer<f32>, y: DeviceBuffer<f64>) {
    let _ = vectors.axpy(x, y, 1.0f32);
}

fn main() {
    let _ = (integers, mixed);
}
