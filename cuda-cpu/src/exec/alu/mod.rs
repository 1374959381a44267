//! Arithmetic, logic, comparisons and selections of registers.
//!
//! Most handlers are lane-wise: a small function over the types in `number`, which `map` applies to all lanes.
//! `decode::alu` selects them.

pub(crate) mod approx;
pub(crate) mod bits;
pub(crate) mod compare;
pub(crate) mod divide;
pub(crate) mod float_arithmetic;
pub(crate) mod int_arithmetic;
pub(crate) mod mufu;
pub(crate) mod select;
pub(crate) mod video;
