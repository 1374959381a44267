//! What the example programs are made of. Begin with a program: `digits/main.rs`, `script/main.rs` or
//! `library/main.rs`.
#![deny(missing_docs)]

pub mod digits;
pub mod image;
pub mod solver;
