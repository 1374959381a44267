//! Kernels with planted bugs, each of which has to be found and named; and kernels without, which must not be accused:
//! among them those of all tests of the engine, which run here once more, with all checks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

mod budget;
mod bugs;
mod clean;
mod orders;
mod planted;
mod profile;
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

/// What hosts check, unless a test says otherwise.
const CHECKS: cuda_cpu::Checks = cuda_cpu::Checks::all();
