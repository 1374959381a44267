//! Checked arithmetic, conditions and launch shapes, for the code that [`kernels!`](crate::kernels) generates.
//!
//! Expressions are computed in 128 bits, so no sum or product of two lengths overflows. A larger value is an error.
//!
//! The functions are always inlined: most parts of an expression are constants or one load.

mod attributes;
mod conditions;
mod quantity;
mod shape;

pub use attributes::{cooperative, dependent, not_dependent};
pub use conditions::{Kernel, Side};
pub use quantity::{Integer, Quantity, Undefined, add, div, int, len, mul, rem, size, sub};
