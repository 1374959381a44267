cuda_async::kernels! {
    #[ptx = "Cargo.toml"]
    pub struct Vectors;
}

fn main() {}
