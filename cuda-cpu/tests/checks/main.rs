//! Kernels with planted bugs, each of which has to be found and named; and kernels without, which must not be accused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests
#![allow(dead_code)] // `host` is shared with the tests of the engine

#[path = "../engine/host.rs"]
mod host;
mod planted;
