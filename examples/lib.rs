//! The parts of the example programs. Each program is the `main.rs` of a folder.
#![deny(missing_docs)]

pub mod decode;
pub mod digits;
pub mod image;
pub mod library;
pub mod solver;
