//! Operands and effects of decoded instructions, as plain data, and the sizes and windows of the machine.
//!
//! `decode` makes them; `machine`, `exec`, `observe`, `schedule` and `launch` read them. This folder uses `fault` for the
//! names of state spaces. The instructions themselves are in `machine`, because a handler is a function of its state.

pub(crate) mod address;
pub(crate) mod barrier;
pub(crate) mod call;
pub(crate) mod effect;
pub(crate) mod preset;
pub(crate) mod sizes;
pub(crate) mod slot;
pub(crate) mod table;
