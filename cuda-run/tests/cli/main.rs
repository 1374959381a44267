//! Runs the built program on the kernels of `kernels/`.
#![allow(clippy::unwrap_used)]

mod cpu_checks;
mod failures;
mod files;
mod kernels;
#[cfg(feature = "lease")]
mod leases;
mod npy;
mod options;
mod support;
