cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct AfterTheKernel;

    #[elements(n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32)
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct AfterTheConditions;

    #[elements(n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32)
    where x.len() == n, y.len() == n
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct BetweenTwoKernels;

    #[elements(n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32)
    where x.len() == n

    #[entry = "saxpy"]
    unsafe fn unchecked(x: &[f32], y: &mut [f32], a: f32, n: u32);
}

fn main() {}
