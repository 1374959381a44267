//! Runs the built program on the kernels of `kernels/`.
#![allow(clippy::unwrap_used)]

mod cpu_checks;
mod failures;
mod files;
mod kernels;
mod npy;
mod options;
mod support;
