//! Arithmetic, logic, comparisons and selections of registers.
//!
//! Most handlers are lane-wise: a small function over the types in `number`, which `map` applies to all lanes.

pub(crate) mod approx;
pub(crate) mod arith_float;
pub(crate) mod arith_int;
pub(crate) mod bits;
pub(crate) mod carry;
pub(crate) mod compare;
pub(crate) mod compare_two;
pub(crate) mod directed;
pub(crate) mod divide;
pub(crate) mod extremes;
pub(crate) mod float_modes;
pub(crate) mod mixed;
pub(crate) mod mufu;
pub(crate) mod packed;
pub(crate) mod property;
pub(crate) mod select;
pub(crate) mod video;
pub(crate) mod video_scalar;
