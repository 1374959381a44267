//! Leases a device from a node, and runs the same pipeline on it and on a local device.
//!
//! ```text
//! cargo run --release --example leased
//! ```
//!
//! The program needs no GPU and no second machine: it starts the node itself. It prints the results and the times side
//! by side, and checks that they have the same bits.
//!
//! The example shows that a leased device is a `Device` like any other, so the pipeline does not know where it runs.
//! One kernel with one output needs no pipeline at all: `submit` is a single call.

use std::time::{Duration, Instant};

use cuda_async::{Device, DeviceOp, Result, open_blocking};
use cuda_lease::LeaseBuilder;
use leased_example::{Kernels, balances, start_node};

/// The number of accounts.
const ACCOUNTS: usize = 100_000;

/// The years that the accounts earn interest.
const YEARS: u32 = 40;

/// Runs the pipeline on a device, and prints a line. The first run loads the kernels, so the second one is measured.
fn run(place: &str, device: &Device, accounts: &[f32]) -> Result<Vec<f32>> {
    let (kernels, stream) = (Kernels::load(device)?, device.new_stream()?);
    balances(kernels.clone(), accounts, YEARS).sync_on(&stream)?;

    let (balances, took) = timed(|| balances(kernels, accounts, YEARS).sync_on(&stream))?;
    let (first, device) = (balances[0], device.info());
    println!("{place:<8}{:<32}{took:>10.1?}   balance {first:.2}", device.address);
    Ok(balances)
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    Ok((work()?, start.elapsed()))
}

fn main() -> Result<()> {
    let node = start_node()?;
    let node = node.address().to_string();
    let lease = LeaseBuilder::new(node).min_vram(64 << 20).lease_secs(60).acquire_blocking()?;
    println!("lease {} for {:.0?}\n", lease.id(), lease.expires_in());

    let accounts: Vec<f32> = (0..ACCOUNTS).map(|i| 1000.0 + i as f32 / 7.0).collect();
    let local = run("local", &open_blocking("cpu")?, &accounts)?;
    let leased = run("leased", &lease, &accounts)?;
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&local), bits(&leased));
    println!("the {ACCOUNTS} balances have the same bits\n");

    let iota = include_str!("../../kernels/iota.ptx"); // iota(f32* region, u32 n): region[i] = i + 1
    let submit = lease.submit("iota", iota).grid(1).block(256).arg(&256u32).max_output(1024);
    let (done, took) = timed(|| submit.launch_blocking())?;
    let values: Vec<f32> = done.output_as()?;
    println!("submit  iota: {:?} .. {:?} in {took:.1?}", values[0], values[255]);
    assert!(values.iter().zip(1..).all(|(value, number)| *value == number as f32));
    Ok(())
}
