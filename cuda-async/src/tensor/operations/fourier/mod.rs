//! Fourier transforms: `transform` prepares their `operands`, and `plain` or `library` computes them.

#[cfg(feature = "cudarc")]
mod library;
mod operands;
mod plain;
mod transform;

pub(crate) use operands::Direction;
pub(crate) use transform::fft;
