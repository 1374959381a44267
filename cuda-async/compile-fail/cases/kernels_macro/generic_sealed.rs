cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct Vectors;

    #[entry(f32 = "saxpy", f64 = "daxpy")]
    #[elements(n)]
    safe fn axpy<T: f32 | f64>(x: &[T], y: &mut [T], a: T, n: u32 = y.len()) where x.len() == y.len();
}

// The kernel would read the bytes of integers as floats.
impl VectorsAxpy for u32 {
    const ENTRY: usize = 0;
    const ALIGNS: &'static [usize] = &[8, 8, 4, 4];
}

struct Mine;

// The length of a buffer decides how far a kernel reaches.
impl cuda_async::kernel::KernelBuffer for Mine {
    fn elements(&self) -> usize {
        usize::MAX
    }
}

fn main() {}
