//! Recorded operations: replays agree with direct runs, beside everything else that uses the same memory.

mod errors;
mod ordering;
mod random;
mod recording;

use cuda_async::Device;

use crate::{devices, on_every_device};

on_every_device! {
    random_recordings_agree
}

/// `RANDOM_RECORDINGS_COUNT=10000` tests more of them.
fn random_recordings_agree(device: &Device) {
    let slow = devices::link().as_ref() == Some(device);
    let longer = std::env::var("RANDOM_RECORDINGS_COUNT").ok().and_then(|count| count.parse().ok());
    random::random_recordings_agree(device, if slow { 10 } else { longer.unwrap_or(1000) });
}
