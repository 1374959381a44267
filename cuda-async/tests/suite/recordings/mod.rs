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

fn random_recordings_agree(device: &Device) {
    let slow = devices::link().as_ref() == Some(device);
    random::random_recordings_agree(device, if slow { 10 } else { 1000 });
}
