cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    pub unsafe struct Vectors;

    #[elements(count)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = z.len())
    where x.len() == m, x == n, a > 0, n.len() > 0;

    #[entry = "saxpy"]
    safe fn derived(x: &[f32], y: &mut [f32], a: f32 = y.len(), n: u32 = n + 1);
}

fn main() {}
