//! The pipeline gives the bits of plain Rust on a local and on a leased device.

use cuda_async::{Device, DeviceOp, Result, open_blocking};
use cuda_lease::LeaseBuilder;
use leased_example::{Kernels, balances, start_node};

#[track_caller]
fn assert_computes_balances(device: &Device) -> Result<()> {
    let accounts: Vec<f32> = (0..1000).map(|i| i as f32 / 7.0).collect();
    let year = |balance: f32| balance * 1.03 + 100.0;
    let expected = |start: &f32| (0..40).fold(*start, |balance, _| year(balance)).to_bits();
    let computed =
        balances(Kernels::load(device)?, &accounts, 40).sync_on(&device.new_stream()?)?;
    let computed: Vec<_> = computed.iter().map(|balance| balance.to_bits()).collect();
    assert_eq!(computed, accounts.iter().map(expected).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn local_device_computes_balances() -> Result<()> {
    assert_computes_balances(&open_blocking("cpu")?)
}

#[test]
fn leased_device_computes_balances() -> Result<()> {
    let node = start_node()?;
    let lease =
        LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    assert_computes_balances(&lease)
}
