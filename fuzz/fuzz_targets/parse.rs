//! Parses any text. An error names a position inside the text.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../cuda-cpu/tests/fuzz/targets.rs"]
mod targets;

fuzz_target!(|text: &str| {
    targets::parse(text);
});
