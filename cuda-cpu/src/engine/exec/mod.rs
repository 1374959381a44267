//! The handlers, by what they do. Each file also chooses the handler for an instruction's
//! modifiers (`pick`).

pub(crate) mod approx;
pub(crate) mod arith_float;
pub(crate) mod arith_int;
pub(crate) mod atomics;
pub(crate) mod barrier_word;
pub(crate) mod bits;
pub(crate) mod carry;
pub(crate) mod cluster;
pub(crate) mod collective;
pub(crate) mod compare;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod copy_async;
pub(crate) mod copy_bulk;
mod directed;
pub(crate) mod float;
mod float_two;
pub(crate) mod int;
pub(crate) mod lane;
pub(crate) mod locate;
pub(crate) mod macros;
pub(crate) mod map;
pub(crate) mod matrix;
pub(crate) mod mbarrier;
pub(crate) mod memory_ops;
pub(crate) mod places;
pub(crate) mod rounding;
pub(crate) mod select;
mod shape;
pub(crate) mod simd;
pub(crate) mod special;
mod stored;
pub(crate) mod suspend;
pub(crate) mod tensor;
pub(crate) mod transfer;
pub(crate) mod update;
