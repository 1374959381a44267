//! PTX text to a checked module.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod ast;
mod types;

pub use ast::*;
pub use types::{ScalarType, Space};
