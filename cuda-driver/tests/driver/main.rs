//! The CUDA backend on a real GPU, at the level of the `Backend` trait.
//!
//! Where there is no device each test prints so and ends. Faults lose the device for the whole process, so those tests
//! run this binary again as a child.

// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod close;
mod foreign;
mod harness;
mod kernels;
mod launches;
mod lost;
mod memory;
mod modules;
mod peers;
mod pools;
mod progress;
mod streams;
