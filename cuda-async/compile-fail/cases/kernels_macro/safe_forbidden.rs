#![forbid(unsafe_code)]

cuda_async::kernels! {
    #[ptx = "../kernels/basic.ptx"]
    pub unsafe struct Basic;

    safe fn empty();
}

fn main() {}
