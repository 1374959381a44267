//! The built program, over the kernels of `kernels/`.
#![allow(clippy::unwrap_used)]

mod failures;
mod files;
mod kernels;
mod npy;
mod options;
mod support;
mod watching;
