cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub struct Saxpy;

    unsafe fn saxpy(x: &[f32], y: &mut [f32], a: u32, n: &[u32]);
    unsafe fn daxpy(x: f64, y: &mut [f64], a: i64, n: f32);
}

fn main() {}
