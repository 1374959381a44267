//! Matrix products: `matmul` prepares them, and `plain` or `library` computes them.

#[cfg(feature = "cudarc")]
mod library;
mod matmul;
mod plain;

pub(crate) use matmul::{linear, matmul};
pub use plain::Activation;
