//! Fourier transforms: `transform` prepares them, and `plain` or `library` computes them.

#[cfg(feature = "cudarc")]
mod library;
mod plain;
mod sizes;
mod transform;

pub(crate) use sizes::Direction;
pub(crate) use transform::fft;
