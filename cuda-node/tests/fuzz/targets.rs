//! The target `lease_session` of the fuzzers in `fuzz/`, and of the test that replays its corpus. It must not panic,
//! hang, or take unbounded memory.
#![allow(dead_code)]

#[path = "../../../cuda-lease/tests/fuzz/targets/input.rs"]
mod input;
#[path = "session.rs"]
mod session;

pub use session::session;
