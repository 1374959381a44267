//! Types of the values in registers and in memory, and their arithmetic.
//!
//! Uses nothing else of `exec`. The lane-wise handlers in `alu` and `convert` are generic over these types, and so are
//! atomics and the multiplications of `tensor`.

pub(crate) mod float;
pub(crate) mod int;
pub(crate) mod lane;
pub(crate) mod narrow;
pub(crate) mod rounding;
