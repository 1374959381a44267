//! The twelve pieces of work.

use cuda_async::{LaunchConfig, Result};

use crate::{
    machine::Machine,
    scalar,
    work::{Array, Work},
};

const KERNELS: &str = include_str!("kernels.ptx");
const VECADD: &str = include_str!("../../kernels/vecadd.ptx");
const MATMUL: &str = include_str!("../../kernels/matmul.ptx");
const REDUCE: &str = include_str!("../../kernels/reduce.ptx");
const SOFTMAX: &str = include_str!("../../kernels/softmax.ptx");
const STENCIL: &str = include_str!("../../kernels/stencil.ptx");
const HISTOGRAM: &str = include_str!("../../kernels/histogram.ptx");

type Make = for<'a> fn(&'a Machine) -> Result<Box<dyn Work + 'a>>;

pub const ALL: [(&str, Make); 12] = [
    ("mandelbrot", mandelbrot),
    ("matmul_naive", |machine| matmul(machine, "matmul_naive")),
    ("matmul_tiled", |machine| matmul(machine, "matmul")),
    ("vecadd", vecadd),
    ("transpose", transpose),
    ("reduce", reduce),
    ("histogram", histogram),
    ("stencil", stencil),
    ("softmax", softmax),
    ("nbody", nbody),
    ("black_scholes", black_scholes),
    ("pcg", pcg),
];

/// Floats between 0 and 4 with few bits.
fn floats(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 7919 % 61) as f32 / 16.0 + 0.125).collect()
}

fn mandelbrot(machine: &Machine) -> Result<Box<dyn Work + '_>> {
    const WIDTH: u32 = 1024;
    const HEIGHT: u32 = 768;
    const LIMIT: u32 = 256;
    let kernel = machine.kernel(KERNELS, "mandelbrot")?;
    let count = (WIDTH * HEIGHT) as usize;
    Ok(Box::new(Array {
        machine,
        plain: |out: &mut [u32]| scalar::mandelbrot(out, WIDTH as usize, LIMIT),
        // SAFETY: the buffer holds a value for each pixel.
        device: move |machine: &Machine, out: &mut _| unsafe {
            let config = LaunchConfig::for_plane(WIDTH, HEIGHT);
            machine.run(&kernel, config, (out, WIDTH, HEIGHT, LIMIT));
        },
        out: vec![0; count],
        buffer: machine.zeros(count)?,
        tolerance: 0.0,
    }))
}

fn matmul<'a>(machine: &'a Machine, kernel: &str) -> Result<Box<dyn Work + 'a>> {
    const N: u32 = 512;
    let kernel = machine.kernel(MATMUL, kernel)?;
    let (n, count) = (N as usize, (N * N) as usize);
    let (a, b) = (floats(count), floats(count + 3)[3..].to_vec());
    let (x, y) = (machine.upload(&a)?, machine.upload(&b)?);
    Ok(Box::new(Array {
        machine,
        plain: move |c: &mut [f32]| scalar::matmul(&a, &b, c, n, n),
        // SAFETY: three buffers of N x N.
        device: move |machine: &Machine, c: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::for_plane(N, N), (&x, &y, c, N, N, N));
        },
        out: vec![0.0; count],
        buffer: machine.zeros(count)?,
        tolerance: 1e-5,
    }))
}

fn vecadd(machine: &Machine) -> Result<Box<dyn Work + '_>> {
    const N: u32 = 4 << 20;
    let kernel = machine.kernel(VECADD, "vecadd")?;
    let (a, b) = (floats(N as usize), floats(N as usize));
    let (x, y) = (machine.upload(&a)?, machine.upload(&b)?);
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| scalar::vecadd(&a, &b, out),
        // SAFETY: three buffers of N.
        device: move |machine: &Machine, out: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::for_num_elems(N), (&x, &y, out, N));
        },
        out: vec![0.0; N as usize],
        buffer: machine.zeros(N as usize)?,
        tolerance: 0.0,
    }))
}

fn transpose(machine: &Machine) -> Result<Box<dyn Work + '_>> {
    const N: u32 = 2048;
    let kernel = machine.kernel(KERNELS, "transpose")?;
    let count = (N * N) as usize;
    let a = floats(count);
    let x = machine.upload(&a)?;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| scalar::transpose(&a, out, N as usize),
        // SAFETY: two buffers of N x N; the kernel wants blocks of 32 x 8.
        device: move |machine: &Machine, out: &mut _| unsafe {
            let config = LaunchConfig::new(1, 1).block(32, 8, 1).grid(N / 32, N / 32, 1);
            machine.run(&kernel, config, (&x, out, N, N));
        },
        out: vec![0.0; count],
        buffer: machine.zeros(count)?,
        tolerance: 0.0,
    }))
}

/// To one sum a block, which plain Rust adds in the same way: one after the other in each block's share.
fn reduce(machine: &Machine) -> Result<Box<dyn Work + '_>> {
    const N: u32 = 4 << 20;
    const BLOCKS: u32 = 64;
    let kernel = machine.kernel(REDUCE, "block_sum_f32")?;
    let x = vec![0.25; N as usize];
    let input = machine.upload(&x)?;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| {
            let shares = x.chunks_exact((N / BLOCKS) as usize);
            shares.zip(out).for_each(|(share, out)| *out = scalar::sum(share));
        },
        // SAFETY: a partial sum for each block, and shared memory for a value of each thread.
        device: move |machine: &Machine, out: &mut _| unsafe {
            let config = LaunchConfig::new(BLOCKS, 256).shared_bytes(256 * 4);
            machine.run(&kernel, config, (&input, out, N));
        },
        out: vec![0.0; BLOCKS as usize],
        buffer: machine.zeros(BLOCKS as usize)?,
        tolerance: 1e-6,
    }))
}

fn histogram(machine: &Machine) -> Result<Box<dyn Work + '_>> {
    const N: u32 = 4 << 20;
    let kernel = machine.kernel(HISTOGRAM, "histogram")?;
    let x: Vec<u8> = (0..N).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let input = machine.upload(&x)?;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [u32]| scalar::histogram(&x, out),
        // SAFETY: 256 counts.
        device: move |machine: &Machine, out: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::new(64, 256), (&input, out, N));
        },
        out: vec![0; 256],
        buffer: machine.zeros(256)?,
        tolerance: 0.0,
    }))
}

fn stencil(machine: &Machine) -> Result<Box<dyn Work + '_>> {
    const N: u32 = 2048;
    let kernel = machine.kernel(STENCIL, "stencil5")?;
    let count = (N * N) as usize;
    let u = floats(count);
    let x = machine.upload(&u)?;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| scalar::stencil5(&u, out, N as usize, 0.5, 0.125),
        // SAFETY: two buffers of N x N.
        device: move |machine: &Machine, out: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::for_plane(N, N), (&x, out, N, N, 0.5f32, 0.125f32));
        },
        out: vec![0.0; count],
        buffer: machine.zeros(count)?,
        tolerance: 1e-6,
    }))
}

fn softmax(machine: &Machine) -> Result<Box<dyn Work + '_>> {
    const ROWS: u32 = 1024;
    const COLUMNS: u32 = 1024;
    let kernel = machine.kernel(SOFTMAX, "softmax")?;
    let count = (ROWS * COLUMNS) as usize;
    let x = floats(count);
    let input = machine.upload(&x)?;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| scalar::softmax(&x, out, COLUMNS as usize),
        // SAFETY: two buffers of rows x columns; a block for each row.
        device: move |machine: &Machine, out: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::new(ROWS, 256), (&input, out, ROWS, COLUMNS));
        },
        out: vec![0.0; count],
        buffer: machine.zeros(count)?,
        tolerance: 1e-5,
    }))
}

fn nbody(machine: &Machine) -> Result<Box<dyn Work + '_>> {
    const N: u32 = 4096;
    let kernel = machine.kernel(KERNELS, "nbody")?;
    let x = floats(4 * N as usize);
    let input = machine.upload(&x)?;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| {
            scalar::nbody(x.as_chunks().0, out.as_chunks_mut().0);
        },
        // SAFETY: four floats for each body; device memory is aligned to 256 bytes.
        device: move |machine: &Machine, out: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::for_num_elems(N), (&input, out, N));
        },
        out: vec![0.0; 4 * N as usize],
        buffer: machine.zeros(4 * N as usize)?,
        tolerance: 1e-3,
    }))
}

fn black_scholes(machine: &Machine) -> Result<Box<dyn Work + '_>> {
    const N: u32 = 1 << 20;
    let kernel = machine.kernel(KERNELS, "black_scholes")?;
    let [spot, strike, years] = [7, 3, 0].map(|i| floats(N as usize + i)[i..].to_vec());
    let [s, k, t] = [machine.upload(&spot)?, machine.upload(&strike)?, machine.upload(&years)?];
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| scalar::black_scholes(&spot, &strike, &years, out),
        // SAFETY: four buffers of N.
        device: move |machine: &Machine, out: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::for_num_elems(N), (&s, &k, &t, out, N));
        },
        out: vec![0.0; N as usize],
        buffer: machine.zeros(N as usize)?,
        tolerance: 1e-5,
    }))
}

fn pcg(machine: &Machine) -> Result<Box<dyn Work + '_>> {
    const N: u32 = 1 << 20;
    const ROUNDS: u32 = 32;
    let kernel = machine.kernel(KERNELS, "pcg")?;
    let x: Vec<u32> = (0..N).collect();
    let buffer = machine.upload(&x)?;
    Ok(Box::new(Array {
        machine,
        plain: |out: &mut [u32]| scalar::pcg(out, ROUNDS),
        // SAFETY: a buffer of N.
        device: move |machine: &Machine, x: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::for_num_elems(N), (x, ROUNDS, N));
        },
        out: x,
        buffer,
        tolerance: 0.0,
    }))
}
