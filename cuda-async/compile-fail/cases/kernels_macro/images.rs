//! Machine code beside PTX, and tiles of inputs.

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    #[cubin(sm_90 = "../kernels/saxpy.cubin")]
    struct Safe;
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    #[cubin(sm_90 = "../kernels/saxpy.ptx")]
    #[fatbin = "../kernels/saxpy.fatbin"]
    unsafe struct Wrong;
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    #[cubin(compute_90 = "../kernels/saxpy.cubin")]
    unsafe struct Architecture;
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    unsafe struct Tiles;

    #[tiles(x, 32)]
    unsafe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32);
}

fn main() {}
