//! What checks cost on one core, as multiples of the time without: `cargo run --release --example check_costs`.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use cuda_cpu::{Checks, Launch, LaunchDims, Memory, Program};

const MATMUL: &str = include_str!("../../kernels/matmul.ptx");
const VECADD: &str = include_str!("../../kernels/vecadd.ptx");
const SOFTMAX: &str = include_str!("../../kernels/softmax.ptx");
const REDUCE: &str = include_str!("../../kernels/reduce.ptx");
const STENCIL: &str = include_str!("../../kernels/stencil.ptx");
const HISTOGRAM: &str = include_str!("../../kernels/histogram.ptx");
const OTHERS: &str = include_str!("../../benches/cpu_device/kernels.ptx");

struct Case {
    ptx: &'static str,
    kernel: &'static str,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    /// Floats in each buffer; the words that follow them.
    buffers: &'static [u64],
    words: &'static [u32],
}

const N: u32 = 1 << 20;
const HALF: u32 = 0x3F00_0000;

const CASES: [Case; 10] = [
    case(VECADD, "vecadd", [4096, 1, 1], [256, 1, 1], &[1 << 20; 3], &[N]),
    case(MATMUL, "matmul_naive", [16, 16, 1], [16, 16, 1], &[1 << 16; 3], &[256; 3]),
    case(MATMUL, "matmul", [16, 16, 1], [16, 16, 1], &[1 << 16; 3], &[256; 3]),
    case(SOFTMAX, "softmax", [512, 1, 1], [256, 1, 1], &[1 << 19; 2], &[512, 1024]),
    Case {
        shared: 1024,
        ..case(REDUCE, "block_sum_f32", [1024, 1, 1], [256, 1, 1], &[1 << 20, 1024], &[N])
    },
    case(STENCIL, "stencil5", [64, 64, 1], [16, 16, 1], &[1 << 20; 2], &[1024, 1024, HALF, HALF]),
    case(HISTOGRAM, "histogram", [64, 1, 1], [256, 1, 1], &[1 << 18, 256], &[N]),
    case(OTHERS, "transpose", [32, 32, 1], [32, 8, 1], &[1 << 20; 2], &[1024, 1024]),
    case(OTHERS, "nbody", [8, 1, 1], [256, 1, 1], &[1 << 13; 2], &[2048]),
    case(OTHERS, "black_scholes", [256, 1, 1], [256, 1, 1], &[1 << 16; 4], &[1 << 16]),
];

const fn case(
    ptx: &'static str,
    kernel: &'static str,
    grid: [u32; 3],
    block: [u32; 3],
    buffers: &'static [u64],
    words: &'static [u32],
) -> Case {
    Case { ptx, kernel, grid, block, shared: 0, buffers, words }
}

/// The best of some, in milliseconds.
fn time(case: &Case, checks: Checks) -> Result<f64, Box<dyn std::error::Error>> {
    let memory = Memory::new(1 << 30).tracking();
    let program = Program::load(&cuda_ptx::parse(case.ptx)?, &memory)?;
    let entry = program.entry(case.kernel).ok_or("no such kernel")?;
    let mut params = Vec::new();
    for &count in case.buffers {
        params.extend(floats(&memory, count)?.to_le_bytes());
    }
    params.extend(case.words.iter().flat_map(|word| word.to_le_bytes()));
    let dims = LaunchDims { grid: case.grid, block: case.block, dynamic_shared: case.shared };
    let launch = Launch { checks, ..Launch::new(dims, &params, &|_| {}) };
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let start = now();
        program.launch(&memory, entry, &launch)?;
        best = best.min(now() - start);
    }
    Ok(best.as_secs_f64() * 1e3)
}

/// The processor time of this thread, where it can be had: others may be busy.
fn now() -> Duration {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let own = times.and_then(|times| times.split(' ').next()?.parse().ok());
    own.map_or_else(|| BEGIN.elapsed(), Duration::from_nanos)
}

/// A buffer of `count` small floats.
fn floats(memory: &Memory, count: u64) -> Result<u64, Box<dyn std::error::Error>> {
    let at = memory.alloc(count * 4, 256)?;
    let values: Vec<u8> = (0..count).flat_map(|i| ((i % 13) as f32 * 0.25).to_le_bytes()).collect();
    memory.write(at, &values)?;
    Ok(at)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked = std::env::args().nth(1);
    let none = Checks::none();
    let kinds = [none.uninitialized(), none.races(), Checks::all()];
    println!("{:<14} {:>9} {:>14} {:>6} {:>5}", "", "none, ms", "uninitialized", "races", "all");
    let mut logs = [0.0; 3];
    let mut count = 0;
    for case in CASES.iter().filter(|case| asked.as_ref().is_none_or(|asked| asked == case.kernel))
    {
        let plain = time(case, none)?;
        let mut ratios = [0.0; 3];
        for (ratio, checks) in ratios.iter_mut().zip(kinds) {
            *ratio = time(case, checks)? / plain;
        }
        let [a, b, c] = ratios;
        println!("{:<14} {plain:>9.2} {a:>14.1} {b:>6.1} {c:>5.1}", case.kernel);
        logs.iter_mut().zip(ratios).for_each(|(sum, ratio)| *sum += ratio.ln());
        count += 1;
    }
    let [a, b, c] = logs.map(|sum: f64| (sum / f64::from(count)).exp());
    println!("{:<14} {:>9} {a:>14.1} {b:>6.1} {c:>5.1}", "geometric mean", "");
    Ok(())
}
