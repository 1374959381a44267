cuda_async::kernels! {
    #[ptx = "../kernels/basic.ptx"]
    pub struct Basic;

    unsafe fn filll(x: &mut [f32], value: f32, n: u32);
    #[entry = "_Z5scalePffj"]
    unsafe fn scale(x: &mut [f32], a: f32, n: u32);
}

fn main() {}
