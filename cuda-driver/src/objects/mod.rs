//! The objects of a backend besides its streams: device memory, pinned host memory, modules, graphs.
//!
//! Uses `streams`, `graphs`, `context` and `driver`. `work` looks memory, functions and graphs up here for every
//! submission. [`modules`] loads a module from PTX or machine code ([`images`]).

mod graphs;
mod host_memory;
mod images;
mod mapping;
mod memory;
mod modules;
mod pools;

pub(crate) use graphs::Graphs;
pub(crate) use host_memory::host_block;
pub(crate) use mapping::Mapping;
pub(crate) use memory::Memory;
pub(crate) use modules::{DriverFunction, ModuleSlot, Modules};
pub(crate) use pools::Pools;
