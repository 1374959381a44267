cuda_async::kernels! {
    #[ptx = "../kernels/filter.ptx"]
    pub struct Filter;

    static mut taps: [f32; 5];
    static limited: u32;
    #[symbol = "limited"]
    static mut signed: [f32; 1];
    static mut limits: u32;
    #[symbol = "taps"]
    static short: [f32; 4];
    #[symbol = "taps"]
    static wide: [Wide; 1];
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(8))]
pub struct Wide(f64, [f32; 2]);

cuda_async::kernels! {
    #[ptx = "../kernels/filter.ptx"]
    pub struct Initialized;

    static mut limited: u32 = 0;
}

fn main() {}
