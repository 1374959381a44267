//! The protocol between the library and a device: plain data, and the traits of a backend.
//!
//! A client sends [`Submission`]s (work on a stream, ordered by [`Ticket`]s) and [`Control`]s; a [`Backend`] answers
//! with [`Notice`]s. Only [`Request`]s have replies, and a reply never blocks the caller. The client chooses every id
//! and never reuses one, so the creation of an object needs no reply. None of these types contains a device address.
//!
//! This folder uses nothing else of the crate. `order` computes with its tickets, `runtime` sends its controls and
//! requests, and `cuda-driver`, `cuda-cpu` and `cuda-lease` implement [`Backend`]. A typical call goes next to
//! `order::history`, which finds the tickets that a submission comes after.

mod backend;
mod control;
mod errors;
mod foreign;
mod graph;
mod id_map;
mod ids;
mod launches;
mod memory;
mod request;
mod work;

pub use backend::{Backend, Capabilities, DeviceInfo, Notice, NoticeSink, Provider};
pub use control::{Control, ModuleImage};
pub use errors::{
    error::{Error, Result, Status},
    fault::{Fault, FaultKind, FaultSite, SourceLine},
    limit::{ExpectedShape, Limit, Quantity},
    misuse::{Feature, MemoryConflict, Misuse},
    other_error::OtherError,
};
pub use foreign::{Foreign, ForeignOwner, ForeignWork, RawStream};
pub use graph::{
    CONDITION_BYTES, Graph, GraphCacheInfo, GraphLaunch, GraphNode, NodeChange, Repeat,
};
pub use id_map::{IdHash, IdHasher, IdMap, IdSet};
pub use ids::{
    Access, AllocId, FunctionId, GraphId, HostId, ModuleId, Name, PoolId, StreamId, Ticket,
    TransferId,
};
pub use launches::{
    EntryInfo, FunctionAttributes, LaunchAttributes, LaunchConfig, MAX_GRID, ModuleInfo, Occupancy,
    ParamInfo, ParamType, ScalarKind, VariableInfo, entries, module_info,
};
pub(crate) use memory::assert_has_bytes;
pub use memory::{
    Element, HostBlock, HostRegion, Pattern, PoolChange, PoolMemory, PoolSpec, Region, Relocation,
    Use,
};
pub use request::{Answer, MemoryInfo, Reply, Request};
pub use work::{Launch, Submission, Work};
