cuda_async::kernels! {
    #[ptx = "../kernels/basic.ptx"]
    pub struct Basic;

    safe fn empty();
}

fn main() {}
