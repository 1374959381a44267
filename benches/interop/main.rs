//! Measures copies of 64 MiB, cuBLAS products and NCCL collectives as operations, beside the raw calls.
//!
//! `cargo bench -p benches --bench interop [-- copies|products|collectives]`. The machine needs a GPU; collectives need
//! two or more. The libraries are found through `LD_LIBRARY_PATH`, NCCL as `libnccl.so`.

mod collectives;
mod copies;
mod products;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let asked: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let runs = |name: &str| asked.is_empty() || asked.iter().any(|argument| argument == name);
    let device = cuda_async::open_blocking("cuda:0")?;
    println!(
        "# {} ({}), driver {:?}",
        device.info().name,
        device.info().address,
        device.info().driver
    );
    if runs("copies") {
        copies::run(&device)?;
    }
    if runs("products") {
        products::run(&device)?;
    }
    if runs("collectives") {
        collectives::run()?;
    }
    Ok(())
}

/// Prints the times of the ways in microseconds, and their ratios to the first.
fn print(title: &str, names: &[&str], micros: &[f64]) {
    println!("\n| {title} | us | to the raw call |\n|---|---:|---:|");
    for (name, time) in names.iter().zip(micros) {
        println!("| {name} | {time:.1} | {:.3} |", time / micros[0]);
    }
}
