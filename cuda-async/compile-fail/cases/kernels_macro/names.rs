cuda_async::kernels! {
    #[ptx = "../kernels/basic.ptx"]
    pub struct Basic;

    #[entry = "empty"]
    unsafe fn load();
}

fn main() {}
