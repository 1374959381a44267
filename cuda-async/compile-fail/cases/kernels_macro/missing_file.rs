cuda_async::kernels! {
    #[ptx = "../kernels/none.ptx"]
    pub struct Vectors;

    unsafe fn vecadd(a: &[f32], b: &[f32], c: &mut [f32], n: u32);
}

fn main() {
    // Known in spite of the error, so that there is one message and not two.
    let _ = Vectors::load;
}
