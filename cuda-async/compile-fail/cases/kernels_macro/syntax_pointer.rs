cuda_async::kernels! {
    #[ptx = "../kernels/basic.ptx"]
    pub struct Basic;

    unsafe fn scale(x: *mut f32, a: f32, n: u32);
}

fn main() {}
