use bytemuck::{Pod, Zeroable};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Mixed {
    a: f32,
    b: i32,
}

cuda_async::kernels! {
    #[ptx = "../kernels/vecadd.ptx"]
    struct Vectors;

    unsafe fn vecadd(a: &[f32], b: &[f32], c: &mut [f32], n: u64);
}

cuda_async::kernels! {
    #[ptx = "../kernels/params.ptx"]
    struct Params;

    unsafe fn struct_by_value(p: Mixed, out: &mut [f64], n: u32);
}

fn main() {}
