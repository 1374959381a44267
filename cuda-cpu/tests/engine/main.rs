//! The engine from outside: PTX text in, memory out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

mod barriers;
mod fairness;
mod faults;
mod foreign;
mod host;
mod kernels;
mod limits;
mod misc;
mod newest;
mod ops;
mod stack;
mod sweep;
mod tensor;
mod wide;

/// What hosts check, unless a test says otherwise. The tests of `checks` run all of this with another one.
const CHECKS: cuda_cpu::Checks = cuda_cpu::Checks::none();
