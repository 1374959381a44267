//! Attributes that name the code.

cuda_async::kernels! {
    #[cuda = "/missing/axpy.cu"]
    struct Missing;
    unsafe fn axpy(x: &[f32]);
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    #[cuda = "../kernels/cuda/typed.cu"]
    struct Both;
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    #[nvrtc("--fmad=false")]
    struct OptionsOfPtx;
}

fn main() {
    _ = Missing::SOURCE;
}
