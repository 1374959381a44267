cuda_async::kernels! {
    #[ptx = "../kernels/basic.ptx"]
    pub struct Basic;

    fn empty();
}

fn main() {}
