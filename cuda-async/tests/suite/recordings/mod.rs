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

/// `RANDOM_RECORDINGS_COUNT=10000` tests more of them. By default, fewer run over a network: each takes 0.1 s there.
fn random_recordings_agree(device: &Device) {
    let programs = if devices::link().as_ref() == Some(device) {
        10
    } else if let Some(count) =
        std::env::var("RANDOM_RECORDINGS_COUNT").ok().and_then(|count| count.parse().ok())
    {
        count
    } else if devices::lease().as_ref() == Some(device) {
        250
    } else {
        1000
    };
    random::random_recordings_agree(device, programs);
}
