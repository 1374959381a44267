//! Handlers: the functions that execute decoded instructions for the lanes of a warp.
//!
//! A handler gets the context (`machine::ctx`) and an op. `decode` selects the handlers. The dispatch loop in
//! `schedule` calls them.
//!
//! Layers, lowest first: `number` (the types of values); `map` (loops over all lanes), `memory`
//! (loads, stores and atomics); `convert`, `sync` (mbarriers and asynchronous copies), `tensor` (matrices); `alu`. The
//! files `control`, `collective` and `special` are small families of their own.

pub(crate) mod alu;
pub(crate) mod collective;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod map;
pub(crate) mod memory;
pub(crate) mod number;
pub(crate) mod special;
pub(crate) mod sync;
pub(crate) mod tensor;
