//! Operands and effects of decoded instructions, as plain data.
//!
//! `decode` makes them, `exec`, `observe` and `schedule` read them. This folder uses `lanes`, and `fault` for the names of
//! state spaces. The instructions themselves are in `machine`, because a handler is a function of the machine's state.

pub(crate) mod address;
pub(crate) mod barrier;
pub(crate) mod call;
pub(crate) mod effect;
pub(crate) mod preset;
pub(crate) mod sizes;
pub(crate) mod slot;
pub(crate) mod sources;
pub(crate) mod table;
pub(crate) mod variables;
