//! A library's function that runs on the device work of its caller: softmax, row by row.
//!
//! ```text
//! cargo run --release --example library
//! ```
//!
//! `main` calls it from two threads on two streams, and compares what it gives with plain Rust.
//!
//! What it shows: a library need not choose a device, a policy or an executor. It takes the caller's
//! `&Stream`, describes its work as an operation, and runs that with `.sync_on(stream)`; for callers that
//! want to compose or to await, it offers the operation too.

use std::{process::ExitCode, thread};

use cuda_async::{Function, Stream, default_device, launch, prelude::*};

/// Threads that share a row; at most 1024 for this kernel.
const THREADS: u32 = 128;

/// How far two results may be apart: the device's `exp` is allowed to differ in its last bits.
const TOLERANCE: f32 = 1e-6;

/// Softmax on one device. The kernel is loaded once; a clone is another handle to it.
#[derive(Clone)]
struct Softmax {
    kernel: Function,
}

impl Softmax {
    fn new(device: &Device) -> cuda_async::Result<Self> {
        let module = device.load_ptx(include_str!("../../kernels/softmax.ptx"))?;
        Ok(Self { kernel: module.function("softmax")? })
    }

    /// The softmax of each row of `x`, which has rows of `columns` numbers, on the caller's stream.
    /// Blocks until it is there. Numbers behind the last whole row are left out.
    fn rows(&self, stream: &Stream, x: &[f32], columns: usize) -> cuda_async::Result<Vec<f32>> {
        let whole = x.len() - x.len() % columns.max(1);
        h2d(&x[..whole]).then(|x| self.rows_op(x, columns)).then(to_host).sync_on(stream)
    }

    /// The same as an operation, for numbers that are on the device already.
    fn rows_op(
        &self,
        x: DeviceBuffer<f32>,
        columns: usize,
    ) -> impl DeviceOp<Output = DeviceBuffer<f32>> + use<> {
        let rows = x.len() / columns.max(1);
        let config = LaunchConfig::new(rows.max(1) as u32, THREADS);
        let softmax = self.kernel.clone();
        zeros(x.len())
            .then(move |y| {
                // SAFETY: reads and writes `rows * columns` numbers of x and y, which have at least that
                // many each.
                unsafe { launch(&softmax, config, (x, y, rows as u32, columns as u32)) }
            })
            .map(|(_, y, ..)| y)
    }
}

/// What [`Softmax::rows`] computes, in plain Rust.
fn expected(x: &[f32], columns: usize) -> Vec<f32> {
    let softmax = |row: &[f32]| {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let e: Vec<f32> = row.iter().map(|x| (x - largest).exp()).collect();
        let sum: f32 = e.iter().sum();
        e.into_iter().map(move |e| e / sum).collect::<Vec<_>>()
    };
    x.chunks_exact(columns).flat_map(softmax).collect()
}

fn largest_error(got: &[f32], expected: &[f32]) -> f32 {
    let error = |(got, expected): (&f32, &f32)| (got - expected).abs();
    let largest = got.iter().zip(expected).map(error).fold(0.0, f32::max);
    if got.len() == expected.len() { largest } else { f32::INFINITY }
}

/// Both results, computed at the same time on streams of their own.
fn on_two_streams(
    device: &Device,
    [a, b]: [(&[f32], usize); 2],
) -> cuda_async::Result<[Vec<f32>; 2]> {
    let softmax = &Softmax::new(device)?;
    let streams = [device.new_stream()?, device.new_stream()?];
    thread::scope(|scope| {
        let first = scope.spawn(|| softmax.rows(&streams[0], a.0, a.1));
        let second = softmax.rows(&streams[1], b.0, b.1)?;
        let first = first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok([first, second])
    })
}

/// Waves of different lengths; any numbers would do.
fn wave(len: usize, period: f32) -> Vec<f32> {
    (0..len).map(|i| 5.0 * (i as f32 / period).sin()).collect()
}

fn run() -> cuda_async::Result<bool> {
    let device = default_device()?;
    let (wide, tall) = ((wave(64 * 1000, 7.0), 1000), (wave(4096 * 10, 3.0), 10));
    let results = on_two_streams(&device, [(&wide.0, wide.1), (&tall.0, tall.1)])?;
    let mut good = true;
    for (result, (x, columns)) in results.iter().zip([wide, tall]) {
        let error = largest_error(result, &expected(&x, columns));
        let rows = x.len() / columns;
        println!("{rows} x {columns} on {}: largest error {error:.1e}", device.info().address);
        good &= error <= TOLERANCE;
    }
    Ok(good)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("library: the device and plain Rust do not agree");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("library: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_plain_rust() -> cuda_async::Result<()> {
        let device = cuda_async::open("cpu")?;
        let (wide, tall) = (wave(3 * 300, 7.0), wave(50 * 4, 3.0));
        let [a, b] = on_two_streams(&device, [(&wide, 300), (&tall, 4)])?;
        assert!(largest_error(&a, &expected(&wide, 300)) <= TOLERANCE);
        assert!(largest_error(&b, &expected(&tall, 4)) <= TOLERANCE);
        Ok(())
    }

    #[test]
    fn a_part_of_a_row_is_left_out() -> cuda_async::Result<()> {
        let device = cuda_async::open("cpu")?;
        let stream = device.new_stream()?;
        let softmax = Softmax::new(&device)?;
        assert_eq!(softmax.rows(&stream, &[0.0, 0.0, 1.0], 2)?, [0.5, 0.5]);
        assert!(softmax.rows(&stream, &[], 2)?.is_empty());
        Ok(())
    }
}
