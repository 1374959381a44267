//! Fourier transforms: `transform` prepares the `operands`, and `plain` or `library` computes the transforms.

#[cfg(feature = "cudarc")]
mod library;
mod operands;
mod plain;
mod transform;

pub(crate) use operands::Direction;
pub(crate) use transform::fft;
