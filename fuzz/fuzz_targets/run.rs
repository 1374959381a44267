//! Runs the kernels of any text that can be loaded, until completion, a fault or the instruction limit.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../cuda-cpu/tests/fuzz/targets.rs"]
mod targets;

fuzz_target!(|text: &str| targets::run(text));
