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
mod capabilities;
mod control;
mod device_info;
mod errors;
mod foreign;
mod graph;
mod graph_cache;
mod ids;
mod launches;
mod memory;
mod name;
mod notice;
mod request;
mod ticket;
mod work;

pub use backend::{Backend, NoticeSink, Provider};
pub use capabilities::Capabilities;
pub use control::{Control, ModuleImage};
pub use device_info::DeviceInfo;
pub use errors::error::{Error, Result};
pub use errors::fault::{Fault, FaultKind, FaultSite};
pub use errors::feature::Feature;
pub use errors::limit::{Limit, Quantity};
pub use errors::misuse::{MemoryConflict, Misuse};
pub use errors::other_error::OtherError;
pub use errors::shape::ExpectedShape;
pub use errors::source_line::SourceLine;
pub use errors::status::Status;
pub use foreign::{Foreign, ForeignOwner, ForeignWork, RawStream};
pub use graph::{CONDITION_BYTES, Graph, GraphLaunch, GraphNode, NodeChange, Repeat};
pub use graph_cache::GraphCacheInfo;
pub use ids::{AllocId, FunctionId, GraphId, HostId, ModuleId, PoolId, StreamId, TransferId};
pub use launches::kernels::{
    EntryInfo, ModuleInfo, ParamInfo, ParamType, ScalarKind, VariableInfo, entries, module_info,
};
pub use launches::launch_config::{LaunchAttributes, LaunchConfig};
pub use launches::occupancy::{FunctionAttributes, Occupancy};
pub use memory::element::Element;
pub(crate) use memory::element::assert_has_bytes;
pub use memory::host_block::HostBlock;
pub use memory::operand::{HostRegion, Pattern, Region, Relocation, Use};
pub use memory::pool::{PoolChange, PoolMemory, PoolSpec};
pub use name::Name;
pub use notice::Notice;
pub use request::{Answer, MemoryInfo, Reply, Request};
pub use ticket::{Access, Ticket};
pub use work::{Launch, Submission, Work};
