//! The targets of the lease fuzzers in `fuzz/`, and of the test that replays their corpora. A target must not panic,
//! hang, or take unbounded memory.
#![allow(dead_code, unused_imports)]

mod frames;
mod input;
mod sequence;
mod token;

pub use frames::frames;
pub use sequence::sequence;
pub use token::token;
