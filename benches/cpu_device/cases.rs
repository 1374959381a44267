//! The twelve cases of the benchmark.

use cuda_async::{LaunchConfig, Result};

use crate::{
    inputs::{bytes, floats, floats_from},
    machine::Machine,
    scalar,
    sizes::Sizes,
    work::{Array, Work},
};

const KERNELS: &str = include_str!("kernels.ptx");
const VECADD: &str = include_str!("../../kernels/vecadd.ptx");
const MATMUL: &str = include_str!("../../kernels/matmul.ptx");
const REDUCE: &str = include_str!("../../kernels/reduce.ptx");
const SOFTMAX: &str = include_str!("../../kernels/softmax.ptx");
const STENCIL: &str = include_str!("../../kernels/stencil.ptx");
const HISTOGRAM: &str = include_str!("../../kernels/histogram.ptx");

type Make = for<'a> fn(&'a Machine, &Sizes) -> Result<Box<dyn Work + 'a>>;

pub const ALL: [(&str, Make); 12] = [
    ("mandelbrot", mandelbrot),
    ("matmul_naive", |machine, sizes| matmul(machine, sizes, "matmul_naive")),
    ("matmul_tiled", |machine, sizes| matmul(machine, sizes, "matmul")),
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

fn mandelbrot<'a>(machine: &'a Machine, sizes: &Sizes) -> Result<Box<dyn Work + 'a>> {
    let [width, height, limit] = sizes.mandelbrot;
    let kernel = machine.kernel(KERNELS, "mandelbrot")?;
    let count = (width * height) as usize;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [u32]| scalar::mandelbrot(out, width as usize, limit),
        // SAFETY: the buffer holds a value for each pixel.
        device: move |machine: &Machine, out: &mut _| unsafe {
            let config = LaunchConfig::for_plane(width, height);
            machine.run(&kernel, config, (out, width, height, limit));
        },
        out: vec![0; count],
        buffer: machine.zeros(count)?,
        tolerance: 0.0,
    }))
}

fn matmul<'a>(machine: &'a Machine, sizes: &Sizes, kernel: &str) -> Result<Box<dyn Work + 'a>> {
    let n = sizes.matmul;
    let kernel = machine.kernel(MATMUL, kernel)?;
    let (width, count) = (n as usize, (n * n) as usize);
    let (a, b) = (floats(count), floats_from(3, count));
    let (x, y) = (machine.upload(&a)?, machine.upload(&b)?);
    Ok(Box::new(Array {
        machine,
        plain: move |c: &mut [f32]| scalar::matmul(&a, &b, c, width, width),
        // SAFETY: three buffers of N x N.
        device: move |machine: &Machine, c: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::for_plane(n, n), (&x, &y, c, n, n, n));
        },
        out: vec![0.0; count],
        buffer: machine.zeros(count)?,
        tolerance: 1e-5,
    }))
}

fn vecadd<'a>(machine: &'a Machine, sizes: &Sizes) -> Result<Box<dyn Work + 'a>> {
    let n = sizes.vecadd;
    let kernel = machine.kernel(VECADD, "vecadd")?;
    let (a, b) = (floats(n as usize), floats(n as usize));
    let (x, y) = (machine.upload(&a)?, machine.upload(&b)?);
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| scalar::vecadd(&a, &b, out),
        // SAFETY: three buffers of N.
        device: move |machine: &Machine, out: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::for_num_elems(n), (&x, &y, out, n));
        },
        out: vec![0.0; n as usize],
        buffer: machine.zeros(n as usize)?,
        tolerance: 0.0,
    }))
}

fn transpose<'a>(machine: &'a Machine, sizes: &Sizes) -> Result<Box<dyn Work + 'a>> {
    let n = sizes.transpose;
    let kernel = machine.kernel(KERNELS, "transpose")?;
    let count = (n * n) as usize;
    let a = floats(count);
    let x = machine.upload(&a)?;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| scalar::transpose(&a, out, n as usize),
        // SAFETY: two buffers of N x N; the kernel requires blocks of 32 x 8.
        device: move |machine: &Machine, out: &mut _| unsafe {
            let config = LaunchConfig::new(1, 1).block(32, 8, 1).grid(n / 32, n / 32, 1);
            machine.run(&kernel, config, (&x, out, n, n));
        },
        out: vec![0.0; count],
        buffer: machine.zeros(count)?,
        tolerance: 0.0,
    }))
}

/// Reduces to one sum per block. Plain Rust adds the elements of each block's share in sequence.
fn reduce<'a>(machine: &'a Machine, sizes: &Sizes) -> Result<Box<dyn Work + 'a>> {
    let [n, blocks] = sizes.reduce;
    let kernel = machine.kernel(REDUCE, "block_sum_f32")?;
    let x = vec![0.25; n as usize];
    let input = machine.upload(&x)?;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| {
            let shares = x.chunks_exact((n / blocks) as usize);
            shares.zip(out).for_each(|(share, out)| *out = scalar::sum(share));
        },
        // SAFETY: a partial sum for each block, and shared memory for a value of each thread.
        device: move |machine: &Machine, out: &mut _| unsafe {
            let config = LaunchConfig::new(blocks, 256).shared_bytes(256 * 4);
            machine.run(&kernel, config, (&input, out, n));
        },
        out: vec![0.0; blocks as usize],
        buffer: machine.zeros(blocks as usize)?,
        tolerance: 1e-6,
    }))
}

fn histogram<'a>(machine: &'a Machine, sizes: &Sizes) -> Result<Box<dyn Work + 'a>> {
    let [n, blocks] = sizes.histogram;
    let kernel = machine.kernel(HISTOGRAM, "histogram")?;
    let x = bytes(n);
    let input = machine.upload(&x)?;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [u32]| scalar::histogram(&x, out),
        // SAFETY: 256 counts.
        device: move |machine: &Machine, out: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::new(blocks, 256), (&input, out, n));
        },
        out: vec![0; 256],
        buffer: machine.zeros(256)?,
        tolerance: 0.0,
    }))
}

fn stencil<'a>(machine: &'a Machine, sizes: &Sizes) -> Result<Box<dyn Work + 'a>> {
    let n = sizes.stencil;
    let kernel = machine.kernel(STENCIL, "stencil5")?;
    let count = (n * n) as usize;
    let u = floats(count);
    let x = machine.upload(&u)?;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| scalar::stencil5(&u, out, n as usize, 0.5, 0.125),
        // SAFETY: two buffers of N x N.
        device: move |machine: &Machine, out: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::for_plane(n, n), (&x, out, n, n, 0.5f32, 0.125f32));
        },
        out: vec![0.0; count],
        buffer: machine.zeros(count)?,
        tolerance: 1e-6,
    }))
}

fn softmax<'a>(machine: &'a Machine, sizes: &Sizes) -> Result<Box<dyn Work + 'a>> {
    let [rows, columns] = sizes.softmax;
    let kernel = machine.kernel(SOFTMAX, "softmax")?;
    let count = (rows * columns) as usize;
    let x = floats(count);
    let input = machine.upload(&x)?;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| scalar::softmax(&x, out, columns as usize),
        // SAFETY: two buffers of rows x columns; a block for each row.
        device: move |machine: &Machine, out: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::new(rows, 256), (&input, out, rows, columns));
        },
        out: vec![0.0; count],
        buffer: machine.zeros(count)?,
        tolerance: 1e-5,
    }))
}

fn nbody<'a>(machine: &'a Machine, sizes: &Sizes) -> Result<Box<dyn Work + 'a>> {
    let n = sizes.nbody;
    let kernel = machine.kernel(KERNELS, "nbody")?;
    let x = floats(4 * n as usize);
    let input = machine.upload(&x)?;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| {
            scalar::nbody(x.as_chunks().0, out.as_chunks_mut().0);
        },
        // SAFETY: four floats for each body; device memory is aligned to 256 bytes.
        device: move |machine: &Machine, out: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::for_num_elems(n), (&input, out, n));
        },
        out: vec![0.0; 4 * n as usize],
        buffer: machine.zeros(4 * n as usize)?,
        tolerance: 1e-3,
    }))
}

fn black_scholes<'a>(machine: &'a Machine, sizes: &Sizes) -> Result<Box<dyn Work + 'a>> {
    let n = sizes.black_scholes;
    let kernel = machine.kernel(KERNELS, "black_scholes")?;
    let [spot, strike, years] = [7, 3, 0].map(|skipped| floats_from(skipped, n as usize));
    let [s, k, t] = [machine.upload(&spot)?, machine.upload(&strike)?, machine.upload(&years)?];
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [f32]| scalar::black_scholes(&spot, &strike, &years, out),
        // SAFETY: four buffers of N.
        device: move |machine: &Machine, out: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::for_num_elems(n), (&s, &k, &t, out, n));
        },
        out: vec![0.0; n as usize],
        buffer: machine.zeros(n as usize)?,
        tolerance: 1e-5,
    }))
}

fn pcg<'a>(machine: &'a Machine, sizes: &Sizes) -> Result<Box<dyn Work + 'a>> {
    let [n, rounds] = sizes.pcg;
    let kernel = machine.kernel(KERNELS, "pcg")?;
    let x: Vec<u32> = (0..n).collect();
    let buffer = machine.upload(&x)?;
    Ok(Box::new(Array {
        machine,
        plain: move |out: &mut [u32]| scalar::pcg(out, rounds),
        // SAFETY: a buffer of N.
        device: move |machine: &Machine, x: &mut _| unsafe {
            machine.run(&kernel, LaunchConfig::for_num_elems(n), (x, rounds, n));
        },
        out: x,
        buffer,
        tolerance: 0.0,
    }))
}
