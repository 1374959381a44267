//! Fourier transforms: `transform` prepares them, and `plain` or `library` computes them.

#[cfg(feature = "cudarc")]
mod library;
mod plain;
mod sizes;
mod transform;

pub(super) use sizes::Direction;
pub(super) use transform::fft;
