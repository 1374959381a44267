//! Loads any text: it is decoded, or rejected.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../cuda-cpu/tests/fuzz/targets.rs"]
mod targets;

fuzz_target!(|text: &str| targets::load(text));
