//! Arithmetic, logic, comparisons and selections of registers.
//!
//! Most handlers are lane-wise: a small function over the types in `number`, which `map` applies to all lanes.
//! `decode::alu` selects them.

pub(crate) mod approx;
pub(crate) mod bits;
pub(crate) mod carry;
pub(crate) mod compare;
pub(crate) mod compare_packed;
pub(crate) mod directed;
pub(crate) mod divide;
pub(crate) mod extremes;
pub(crate) mod float_arithmetic;
pub(crate) mod float_modifiers;
pub(crate) mod fma_halves;
pub(crate) mod int_arithmetic;
pub(crate) mod mixed;
pub(crate) mod mufu;
pub(crate) mod packed;
pub(crate) mod property;
pub(crate) mod select;
pub(crate) mod video;
pub(crate) mod video_scalar;
