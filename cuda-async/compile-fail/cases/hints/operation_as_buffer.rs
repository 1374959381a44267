use cuda_async::{memory::read_back, prelude::*, to_pinned};

fn main() {
    let _ = to_host(h2d(vec![1u8]));
    let _ = to_pinned(zeros::<u8>(4));
    let _ = read_back(value(1));
    let _ = h2d(vec![1u8]).to_host_vec();
}
