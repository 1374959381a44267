//! Any text that parses: decoded or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../cuda-cpu/tests/fuzz/targets.rs"]
mod targets;

fuzz_target!(|text: &str| targets::load(text));
