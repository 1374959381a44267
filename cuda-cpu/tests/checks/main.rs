//! Tests of the checks. Kernels with planted bugs must be reported with the right fault. Correct kernels must not be
//! reported. Those include most tests of `tests/engine`, which run here once more with all checks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

mod budget;
mod bugs;
mod clean;
mod orders;
mod planted;
mod profile;
mod read_only;
mod unwritten;

#[path = "../engine/barriers.rs"]
mod barriers;
#[path = "../engine/fairness.rs"]
mod fairness;
#[path = "../engine/faults.rs"]
mod faults;
#[path = "../engine/host.rs"]
mod host;
#[path = "../engine/kernels.rs"]
mod kernels;
#[path = "../engine/limits.rs"]
mod limits;
#[path = "../engine/misc.rs"]
mod misc;
#[path = "../engine/ops.rs"]
mod ops;
#[path = "../engine/stack.rs"]
mod stack;
#[path = "../engine/wide.rs"]
mod wide;

/// Checks that hosts enable by default.
const CHECKS: cuda_cpu::Checks = cuda_cpu::Checks::all();
