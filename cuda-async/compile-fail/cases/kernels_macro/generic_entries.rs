cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub struct NoEntries;

    unsafe fn axpy<T: f32 | f64>(x: &[T], y: &mut [T], a: T, n: u32);
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub struct OneIsMissing;

    #[entry(f32 = "saxpy")]
    unsafe fn axpy<T: f32 | f64>(x: &[T], y: &mut [T], a: T, n: u32);
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub struct WrongEntries;

    #[entry(f32 = "saxpy", f64 = "saxpy", i32 = "iaxpy")]
    unsafe fn axpy<T: f32 | f64 | i32>(x: &[T], y: &mut [T], a: T, n: u32);
}

fn main() {}
