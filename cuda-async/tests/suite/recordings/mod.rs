//! Recorded operations: replays agree with direct runs, beside everything else that uses the same memory.

mod random;

use cuda_async::Device;

use crate::on_every_device;

on_every_device! {
    random_recordings_agree
}

fn random_recordings_agree(device: &Device) {
    let slow = device.info().address.starts_with("link");
    random::random_recordings_agree(device, if slow { 20 } else { 300 });
}
