cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct One;

    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32) where n < x.len() || n;
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct Two;

    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = min(x.len(), y.len()));
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct Three;

    #[config(grid = n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32);
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct Four;

    #[elements(n)]
    #[plane(n, n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32);
}

fn main() {}
