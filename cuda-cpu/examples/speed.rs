//! How long the interpreter takes on one core for a few kernels: `cargo run --release --example speed`.

use std::time::{Duration, Instant};

use cuda_cpu::{Launch, LaunchDims, Memory, Program};

const WIDE: &str = include_str!("../tests/ptx/wide.ptx");
const MATMUL: &str = include_str!("../../kernels/matmul.ptx");
const VECADD: &str = include_str!("../../kernels/vecadd.ptx");
const SOFTMAX: &str = include_str!("../../kernels/softmax.ptx");

/// The best of five.
fn time(
    ptx: &str,
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    params: impl Fn(&Memory) -> Vec<u8>,
) {
    let memory = Memory::new(1 << 30);
    let Ok(module) = cuda_ptx::parse(ptx) else { return println!("{kernel}: does not parse") };
    let program = match Program::load(&module, &memory) {
        Ok(program) => program,
        Err(error) => return println!("{kernel}: {error}"),
    };
    let Some(entry) = program.entry(kernel) else { return println!("{kernel}: no such kernel") };
    let params = params(&memory);
    let dims = LaunchDims { grid, block, dynamic_shared: 0 };
    let launch = Launch::new(dims, &params, &|_| {});
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        if let Err(error) = program.launch(&memory, entry, &launch) {
            return println!("{kernel}: {error}");
        }
        best = best.min(start.elapsed());
    }
    println!("{kernel:<14} {:>8.1} ms", best.as_secs_f64() * 1e3);
}

/// A buffer of `count` small floats.
fn floats(memory: &Memory, count: u64) -> [u8; 8] {
    let at = memory.alloc(count * 4, 256).unwrap_or(0);
    let values: Vec<u8> = (0..count).flat_map(|i| ((i % 13) as f32 * 0.25).to_le_bytes()).collect();
    if let Err(error) = memory.write(at, &values) {
        println!("{error}");
    }
    at.to_le_bytes()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn main() {
    time(WIDE, "mandelbrot", [64, 48, 1], [16, 16, 1], |m| {
        [floats(m, 1024 * 768).to_vec(), words(&[1024, 768, 256])].concat()
    });
    for kernel in ["matmul_naive", "matmul"] {
        time(MATMUL, kernel, [32, 32, 1], [16, 16, 1], |m| {
            let n = 512 * 512;
            [floats(m, n), floats(m, n), floats(m, n)]
                .concat()
                .into_iter()
                .chain(words(&[512; 3]))
                .collect()
        });
    }
    time(VECADD, "vecadd", [16384, 1, 1], [256, 1, 1], |m| {
        let n = 4 << 20;
        [floats(m, n), floats(m, n), floats(m, n)]
            .concat()
            .into_iter()
            .chain(words(&[4 << 20]))
            .collect()
    });
    time(SOFTMAX, "softmax", [512, 1, 1], [256, 1, 1], |m| {
        [floats(m, 1 << 19), floats(m, 1 << 19)]
            .concat()
            .into_iter()
            .chain(words(&[512, 1024]))
            .collect()
    });
}
