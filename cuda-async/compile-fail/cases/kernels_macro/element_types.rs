//! Types of elements, and `const`, in the source and in mangled names.

cuda_async::kernels! {
    #[cuda = "../kernels/cuda/typed.cu"]
    #[nvrtc("-DSCALE=1.0f", "--fmad=false")]
    struct Typed;

    unsafe fn axpy(x: &[f64], y: &[f32], a: f32, n: u32);
    #[entry = "_Z4bitsPKfPjj"]
    unsafe fn bits(x: &mut [f32], out: &mut [u16], n: u32);
}

cuda_async::kernels! {
    #[cuda = "../kernels/cuda/typed.cu"]
    #[nvrtc("-DSCALE=1.0f", "--fmad=false")]
    struct Counts;

    unsafe fn axpy(x: &[f32], y: &mut [f32], a: u32);
    unsafe fn copy_bytes(input: &[f32], out: &mut [[f32; 4]], bytes: u32);
}

fn main() {}
