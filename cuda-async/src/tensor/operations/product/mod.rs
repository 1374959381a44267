//! Matrix products: `matmul` prepares their `operands`, and `plain` or `library` computes them.

#[cfg(feature = "cudarc")]
mod library;
mod matmul;
mod operands;
mod plain;

pub(crate) use matmul::{linear, matmul};
pub use operands::Activation;
