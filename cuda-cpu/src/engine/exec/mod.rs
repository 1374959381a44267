//! The handlers, by what they do. Each file also chooses the handler for an instruction's
//! modifiers (`pick`).

pub(crate) mod approx;
pub(crate) mod arith_float;
pub(crate) mod arith_int;
pub(crate) mod atomics;
pub(crate) mod bits;
pub(crate) mod carry;
pub(crate) mod collective;
pub(crate) mod compare;
pub(crate) mod control;
pub(crate) mod convert;
mod convert_forms;
mod convert_int;
mod convert_narrow;
mod divide;
pub(crate) mod float;
mod float_two;
pub(crate) mod int;
pub(crate) mod lane;
pub(crate) mod locate;
pub(crate) mod macros;
pub(crate) mod map;
pub(crate) mod memory_ops;
mod mufu;
mod narrow;
pub(crate) mod rounding;
pub(crate) mod select;
pub(crate) mod special;
