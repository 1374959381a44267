//! The objects of a backend besides its streams: device memory, pinned host memory, modules, graphs, announced
//! transfers.
//!
//! Uses `streams`, `graphs`, `context` and `driver`. `work` looks memory, functions and transfers up here for every
//! submission. [`modules`] loads a module with the driver's PTX compiler ([`compiler`]), or from [`machine_code`].

mod compiler;
mod graphs;
mod host_memory;
mod machine_code;
mod mapping;
mod memory;
mod modules;
mod pools;
mod transfers;

pub(crate) use graphs::Graphs;
pub(crate) use host_memory::host_block;
pub(crate) use mapping::Mapping;
pub(crate) use memory::Memory;
pub(crate) use modules::{DriverFunction, ModuleSlot, Modules};
pub(crate) use pools::Pools;
pub(crate) use transfers::{BackendId, Target, Transfers};
