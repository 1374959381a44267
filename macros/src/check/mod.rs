//! Compares a declaration with the code that it names.
//!
//! [`code::Code`] reads the PTX, or compiles the CUDA source. [`code::Contents`] lists its kernels and variables.

pub(crate) mod code;
pub(crate) mod fit;
pub(crate) mod kernels;
pub(crate) mod variables;
