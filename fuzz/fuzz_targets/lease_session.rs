//! Runs any commands on a worker with a CPU device.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../cuda-node/tests/fuzz/targets.rs"]
mod targets;

fuzz_target!(|bytes: &[u8]| targets::session(bytes));
