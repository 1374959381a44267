//! Passes two devices to a library, which runs on both at the same time.
//!
//! ```text
//! cargo run --release --example library
//! ```
//!
//! The devices are the default device and a separate CPU device. The library in `mod.rs` runs one call on a given
//! stream, and many batches on the streams of a given policy.

use cuda_async::{cuda_cpu::CpuProvider, default_device, policy::Devices, prelude::*};
use examples::library::{softmax_batches, softmax_rows};
use futures::{TryStreamExt, executor::block_on};

/// The number of columns in a row.
const COLUMNS: usize = 1000;

/// Returns test data: waves.
fn batch(n: usize) -> Vec<f32> {
    (0..16 * COLUMNS).map(|i| 5.0 * (i as f32 / (3 + n) as f32).sin()).collect()
}

fn main() -> cuda_async::Result<()> {
    let devices = [default_device()?, Device::open(&CpuProvider::default(), 0)?];

    let stream = devices[0].new_stream()?;
    let one = softmax_rows(&stream, &batch(0), COLUMNS)?;
    println!("{} rows on {}", one.len() / COLUMNS, devices[0]);

    let both = Devices::in_turn(devices.clone())?;
    let all = softmax_batches(&both, (0..40).map(batch), COLUMNS);
    let all: Vec<Vec<f32>> = block_on(all.try_collect())?;
    println!("{} rows on {} and {}", all.concat().len() / COLUMNS, devices[0], devices[1]);

    let sum: f32 = one[..COLUMNS].iter().sum();
    println!("a row has the sum {sum:.3}, and both ways agree: {}", one == all[0]);
    Ok(())
}
