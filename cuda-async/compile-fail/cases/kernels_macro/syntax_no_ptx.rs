cuda_async::kernels! {
    pub struct Basic;

    unsafe fn empty();
}

fn main() {}
