//! Any text that can be loaded: its kernels run to their end, to a fault, or until their budget is used up.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../cuda-cpu/tests/fuzz/targets.rs"]
mod targets;

fuzz_target!(|text: &str| targets::run(text));
