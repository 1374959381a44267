//! Handlers: the functions that execute decoded instructions for the lanes of a warp.
//!
//! A handler gets the context (`ctx`) and an op. Handlers use the operand types in `lane`, the translation of addresses
//! in `locate`, and the vector loops in `map` and `simd`. `decode` selects the handlers: most files have a `pick`
//! function that takes the modifiers of an instruction and returns its handler. The dispatch loop in `runner` calls
//! them.

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
pub(crate) mod compare_two;
pub(crate) mod control;
pub(crate) mod convert;
mod convert_forms;
mod convert_int;
mod convert_narrow;
pub(crate) mod copy_async;
pub(crate) mod copy_bulk;
mod directed;
mod divide;
pub(crate) mod extremes;
pub(crate) mod float;
mod float_two;
mod ftz;
pub(crate) mod int;
pub(crate) mod lane;
pub(crate) mod locate;
pub(crate) mod macros;
pub(crate) mod map;
pub(crate) mod matrix;
pub(crate) mod mbarrier;
pub(crate) mod memory_ops;
mod mixed;
mod mufu;
mod nan;
mod narrow;
pub(crate) mod packed;
pub(crate) mod places;
pub(crate) mod property;
pub(crate) mod rounding;
pub(crate) mod select;
mod shape;
pub(crate) mod simd;
pub(crate) mod special;
pub(crate) mod stack;
mod stored;
pub(crate) mod suspend;
pub(crate) mod tensor;
pub(crate) mod transfer;
pub(crate) mod update;
pub(crate) mod video;
pub(crate) mod video_scalar;
pub(crate) mod wide;
