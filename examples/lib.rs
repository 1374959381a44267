//! What the example programs are made of. Begin with a program: the `main.rs` of a folder.
#![deny(missing_docs)]

pub mod digits;
pub mod image;
pub mod library;
pub mod solver;
