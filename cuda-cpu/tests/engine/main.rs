//! Tests of `Program` and `Memory`: PTX in, memory out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

mod barriers;
mod clusters;
mod fairness;
mod faults;
mod foreign;
mod generic;
mod host;
mod kernels;
mod limits;
mod misc;
mod moves;
mod newest;
mod ops;
mod stack;
mod sweep;
mod tensor;
mod wide;

/// Checks that hosts enable by default. The `checks` tests run these tests with another value.
const CHECKS: cuda_cpu::Checks = cuda_cpu::Checks::none();
