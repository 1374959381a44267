//! A source with a mistake.

cuda_async::kernels! {
    #[cuda = "../kernels/cuda/mistake.cu"]
    struct Mistake;
    #[entry = "_Z1kPf"]
    unsafe fn k(x: &mut [f32]);
}

fn main() {}
