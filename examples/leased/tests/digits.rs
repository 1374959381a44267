//! The network of the example `digits` gives the same bits on a leased device as on a local one.

use std::{error::Error, sync::Arc};

use cuda_async::{Device, DeviceOp, h2d, open_blocking, to_host, zip};
use cuda_lease::LeaseBuilder;
use examples::digits::{Digits, Model, Weights};
use leased_example::start_node;

/// The labels and the bits of the probabilities of the held-out digits.
fn read(device: &Device) -> Result<(Vec<u32>, Vec<u32>), Box<dyn Error>> {
    let (digits, stream) = (Digits::load()?.held_out(), device.new_stream()?);
    let model = Model::upload(device, &Weights::load()?)?.sync_on(&stream)?;
    let pixels = digits.batches(digits.len()).next().unwrap_or_default();
    let op = h2d(pixels).then(|pixels| model.logits(pixels)).map(Arc::new).then(|logits| {
        zip!(model.labels(logits.clone()).then(to_host), model.probabilities(logits).then(to_host))
    });
    let (labels, probabilities) = op.sync_on(&stream)?;
    Ok((labels, probabilities.iter().map(|probability| probability.to_bits()).collect()))
}

#[test]
fn leased_device_reads_the_digits_as_a_local_one() -> Result<(), Box<dyn Error>> {
    let node = start_node()?;
    let lease =
        LeaseBuilder::new(node.address().to_string()).min_vram(64 << 20).acquire_blocking()?;
    let (labels, probabilities) = read(&lease)?;
    assert_eq!(labels.len(), 360);
    assert!((labels, probabilities) == read(&open_blocking("cpu")?)?);
    Ok(())
}
