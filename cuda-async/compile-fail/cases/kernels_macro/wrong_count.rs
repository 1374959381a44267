cuda_async::kernels! {
    #[ptx = "../kernels/vecadd.ptx"]
    pub struct Vectors;

    unsafe fn vecadd(a: &[f32], b: &[f32], c: &mut [f32]);
    #[entry = "vecadd"]
    unsafe fn more(a: &[f32], b: &[f32], c: &mut [f32], n: u32, m: u32);
}

fn main() {}
