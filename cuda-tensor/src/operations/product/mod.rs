//! Matrix products: `matmul` prepares the `operands`, and `plain` or `library` computes the products.

#[cfg(feature = "cudarc")]
mod library;
mod matmul;
mod operands;
mod plain;

pub(crate) use matmul::{linear, matmul};
pub use operands::Activation;
