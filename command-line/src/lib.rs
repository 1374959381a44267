//! The parts that the command lines `cuda-run` and `cuda-lease` share.
//!
//! Lowest first: [`dtype`](Dtype) names the types of numbers, [`scalar`] parses a number, and [`npy`] reads and writes
//! arrays with their [`ArrayType`]. [`parameter`] compares an argument with
//! a parameter of a kernel. Every error is a [`Failure`]: a message and an exit status.
#![forbid(unsafe_code)]

mod dimensions;
mod dtype;
mod failure;
pub mod npy;
pub mod parameter;
pub mod scalar;
pub mod stdout;

pub use dimensions::{Dimensions, dimensions};
pub use dtype::{ArrayType, Dtype, MAX_DIMENSIONS};
pub use failure::Failure;
