//! Numbers, acknowledges and resumes frames with a peer that keeps no rule.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../cuda-lease/tests/fuzz/targets/mod.rs"]
mod targets;

fuzz_target!(|bytes: &[u8]| targets::sequence(bytes));
