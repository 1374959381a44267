//! The CUDA backend against a real GPU, at the level of the `Backend` trait.
//!
//! Where there is no device each test says so and ends. Faults lose the device for the whole process,
//! so those tests run this binary again as a child.

// A failure here is a test's, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod external;
mod harness;
mod kernels;
mod launches;
mod lost;
mod memory;
mod modules;
mod notices;
mod streams;
