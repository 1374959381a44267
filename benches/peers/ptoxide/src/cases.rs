//! The twelve cases of `benches/cpu_device/cases.rs`, with the same launch shapes.

use crate::{
    inputs::{bytes, floats, floats_from},
    scalar,
    sizes::Sizes,
};

const KERNELS: &str = include_str!("../../../cpu_device/kernels.ptx");
const VECADD: &str = include_str!("../../../../kernels/vecadd.ptx");
const MATMUL: &str = include_str!("../../../../kernels/matmul.ptx");
const REDUCE: &str = include_str!("../../../../kernels/reduce.ptx");
const SOFTMAX: &str = include_str!("../../../../kernels/softmax.ptx");
const STENCIL: &str = include_str!("../../../../kernels/stencil.ptx");
const HISTOGRAM: &str = include_str!("../../../../kernels/histogram.ptx");

pub enum Arg {
    /// An array that the kernel reads, as bytes.
    Array(Vec<u8>),
    /// The array that the kernel writes, with its initial contents.
    Result(Vec<u8>),
    U32(u32),
    F32(f32),
}

/// The result of plain Rust.
pub enum Want {
    F32(Vec<f32>),
    U32(Vec<u32>),
}

pub struct Case {
    pub name: &'static str,
    pub ptx: &'static str,
    pub entry: &'static str,
    pub grid: [u32; 2],
    pub block: [u32; 2],
    pub args: Vec<Arg>,
    pub want: Want,
    /// The largest difference of results, relative for values above 1.
    pub tolerance: f64,
}

impl Want {
    pub fn bytes(&self) -> usize {
        4 * match self {
            Self::F32(values) => values.len(),
            Self::U32(values) => values.len(),
        }
    }

    pub fn agrees(&self, got: &[u8], tolerance: f64) -> bool {
        let close = |got: f64, want: f64| (got - want).abs() <= tolerance * want.abs().max(1.0);
        let words = || got.as_chunks().0.iter().copied();
        match self {
            Self::F32(want) => words()
                .zip(want)
                .all(|(got, want)| close(f32::from_ne_bytes(got).into(), (*want).into())),
            Self::U32(want) => words().map(u32::from_ne_bytes).eq(want.iter().copied()),
        }
    }
}

pub fn all(sizes: &Sizes) -> [Case; 12] {
    [
        mandelbrot(sizes),
        matmul(sizes, "matmul_naive", "matmul_naive"),
        matmul(sizes, "matmul_tiled", "matmul"),
        vecadd(sizes),
        transpose(sizes),
        reduce(sizes),
        histogram(sizes),
        stencil(sizes),
        softmax(sizes),
        nbody(sizes),
        black_scholes(sizes),
        pcg(sizes),
    ]
}

fn array(values: &[f32]) -> Arg {
    Arg::Array(bytemuck::cast_slice(values).to_vec())
}

/// An output of `n` values of 4 bytes.
fn zeros(count: usize) -> Arg {
    Arg::Result(vec![0; 4 * count])
}

/// Blocks of 256 threads for `n` elements.
fn line(n: u32) -> ([u32; 2], [u32; 2]) {
    ([n.div_ceil(256), 1], [256, 1])
}

/// Blocks of 16 x 16.
fn plane(width: u32, height: u32) -> ([u32; 2], [u32; 2]) {
    ([width.div_ceil(16), height.div_ceil(16)], [16, 16])
}

fn mandelbrot(sizes: &Sizes) -> Case {
    let [width, height, limit] = sizes.mandelbrot;
    let mut want = vec![0; (width * height) as usize];
    scalar::mandelbrot(&mut want, width as usize, limit);
    let (grid, block) = plane(width, height);
    let args = vec![zeros(want.len()), Arg::U32(width), Arg::U32(height), Arg::U32(limit)];
    let (name, want) = ("mandelbrot", Want::U32(want));
    Case { name, ptx: KERNELS, entry: name, grid, block, args, want, tolerance: 0.0 }
}

fn matmul(sizes: &Sizes, name: &'static str, entry: &'static str) -> Case {
    let n = sizes.matmul;
    let count = (n * n) as usize;
    let (a, b, mut want) = (floats(count), floats_from(3, count), vec![0.0; count]);
    scalar::matmul(&a, &b, &mut want, n as usize, n as usize);
    let (grid, block) = plane(n, n);
    let args = vec![array(&a), array(&b), zeros(count), Arg::U32(n), Arg::U32(n), Arg::U32(n)];
    let want = Want::F32(want);
    Case { name, ptx: MATMUL, entry, grid, block, args, want, tolerance: 1e-5 }
}

fn vecadd(sizes: &Sizes) -> Case {
    let n = sizes.vecadd;
    let (a, mut want) = (floats(n as usize), vec![0.0; n as usize]);
    scalar::vecadd(&a, &a, &mut want);
    let (grid, block) = line(n);
    let args = vec![array(&a), array(&a), zeros(want.len()), Arg::U32(n)];
    let (name, want) = ("vecadd", Want::F32(want));
    Case { name, ptx: VECADD, entry: name, grid, block, args, want, tolerance: 0.0 }
}

fn transpose(sizes: &Sizes) -> Case {
    let n = sizes.transpose;
    let a = floats((n * n) as usize);
    let mut want = vec![0.0; a.len()];
    scalar::transpose(&a, &mut want, n as usize);
    let (grid, block) = ([n / 32, n / 32], [32, 8]);
    let args = vec![array(&a), zeros(a.len()), Arg::U32(n), Arg::U32(n)];
    let (name, want) = ("transpose", Want::F32(want));
    Case { name, ptx: KERNELS, entry: name, grid, block, args, want, tolerance: 0.0 }
}

/// Replaces dynamic shared memory, which ptoxide's launches do not support.
fn reduce(sizes: &Sizes) -> Case {
    let [n, blocks] = sizes.reduce;
    let x = vec![0.25; n as usize];
    let want: Vec<_> = x.chunks_exact((n / blocks) as usize).map(scalar::sum).collect();
    let args = vec![array(&x), zeros(want.len()), Arg::U32(n)];
    let (grid, block, want) = ([blocks, 1], [256, 1], Want::F32(want));
    let (name, entry) = ("reduce", "block_sum_f32");
    Case { name, ptx: REDUCE, entry, grid, block, args, want, tolerance: 1e-6 }
}

fn histogram(sizes: &Sizes) -> Case {
    let [n, blocks] = sizes.histogram;
    let (x, mut want) = (bytes(n), vec![0; 256]);
    scalar::histogram(&x, &mut want);
    let args = vec![Arg::Array(x), zeros(want.len()), Arg::U32(n)];
    let (grid, block, want) = ([blocks, 1], [256, 1], Want::U32(want));
    let name = "histogram";
    Case { name, ptx: HISTOGRAM, entry: name, grid, block, args, want, tolerance: 0.0 }
}

fn stencil(sizes: &Sizes) -> Case {
    let n = sizes.stencil;
    let u = floats((n * n) as usize);
    let mut want = vec![0.0; u.len()];
    scalar::stencil5(&u, &mut want, n as usize, 0.5, 0.125);
    let (grid, block) = plane(n, n);
    let weights = [Arg::F32(0.5), Arg::F32(0.125)];
    let mut args = vec![array(&u), zeros(u.len()), Arg::U32(n), Arg::U32(n)];
    args.extend(weights);
    let (name, entry, want) = ("stencil", "stencil5", Want::F32(want));
    Case { name, ptx: STENCIL, entry, grid, block, args, want, tolerance: 1e-6 }
}

fn softmax(sizes: &Sizes) -> Case {
    let [rows, columns] = sizes.softmax;
    let x = floats((rows * columns) as usize);
    let mut want = vec![0.0; x.len()];
    scalar::softmax(&x, &mut want, columns as usize);
    let args = vec![array(&x), zeros(x.len()), Arg::U32(rows), Arg::U32(columns)];
    let (name, grid, block, want) = ("softmax", [rows, 1], [256, 1], Want::F32(want));
    Case { name, ptx: SOFTMAX, entry: name, grid, block, args, want, tolerance: 1e-5 }
}

fn nbody(sizes: &Sizes) -> Case {
    let n = sizes.nbody;
    let x = floats(4 * n as usize);
    let mut want = vec![0.0; x.len()];
    scalar::nbody(x.as_chunks().0, want.as_chunks_mut().0);
    let (grid, block) = line(n);
    let args = vec![array(&x), zeros(x.len()), Arg::U32(n)];
    let (name, want) = ("nbody", Want::F32(want));
    Case { name, ptx: KERNELS, entry: name, grid, block, args, want, tolerance: 1e-3 }
}

fn black_scholes(sizes: &Sizes) -> Case {
    let n = sizes.black_scholes;
    let [spot, strike, years] = [7, 3, 0].map(|skipped| floats_from(skipped, n as usize));
    let mut want = vec![0.0; n as usize];
    scalar::black_scholes(&spot, &strike, &years, &mut want);
    let (grid, block) = line(n);
    let args = vec![array(&spot), array(&strike), array(&years), zeros(want.len()), Arg::U32(n)];
    let (name, want) = ("black_scholes", Want::F32(want));
    Case { name, ptx: KERNELS, entry: name, grid, block, args, want, tolerance: 1e-5 }
}

fn pcg(sizes: &Sizes) -> Case {
    let [n, rounds] = sizes.pcg;
    let x: Vec<u32> = (0..n).collect();
    let mut want = x.clone();
    scalar::pcg(&mut want, rounds);
    let (grid, block) = line(n);
    let args = vec![Arg::Result(bytemuck::cast_slice(&x).to_vec()), Arg::U32(rounds), Arg::U32(n)];
    let (name, want) = ("pcg", Want::U32(want));
    Case { name, ptx: KERNELS, entry: name, grid, block, args, want, tolerance: 0.0 }
}
