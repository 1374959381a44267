//! The protocol between the library and a device: plain data, and the traits of a backend.
//!
//! A client sends [`Submission`]s (work on a stream, ordered by [`Ticket`]s) and [`Control`]s; a [`Backend`] answers
//! with [`Notice`]s. Only [`Request`]s have replies, and a reply never blocks the caller. The client chooses every id
//! and never reuses one, so nothing that is created needs an answer. No device address crosses these types.
//!
//! This folder uses nothing else of the crate. `order` computes with its tickets, `runtime` sends its controls and
//! requests, and `cuda` and other crates implement [`Backend`]. A typical call goes next to `order::history`, which
//! finds the tickets that a submission comes after.

mod backend;
mod capabilities;
mod control;
mod device_info;
mod element;
mod error;
mod error_names;
mod error_status;
mod fault;
mod foreign;
mod graph;
mod graph_cache;
mod host_block;
mod ids;
mod kernels;
mod launch_attributes;
mod launch_config;
mod name;
mod notice;
mod occupancy;
mod operand;
mod other_error;
mod pool;
mod request;
mod source_line;
mod status;
mod ticket;
mod work;

pub use backend::{Backend, NoticeSink, Provider};
pub use capabilities::Capabilities;
pub use control::{Control, ModuleImage};
pub use device_info::DeviceInfo;
pub use element::Element;
pub(crate) use element::assert_has_bytes;
pub use error::{Error, Result};
pub use fault::{Fault, FaultKind, FaultSite};
pub use foreign::{Foreign, ForeignOwner, ForeignWork, RawStream};
pub use graph::{CONDITION_BYTES, Graph, GraphLaunch, GraphNode, NodeChange, Repeat};
pub use graph_cache::GraphCacheInfo;
pub use host_block::HostBlock;
pub use ids::{AllocId, FunctionId, GraphId, HostId, ModuleId, PoolId, StreamId, TransferId};
pub use kernels::{
    EntryInfo, ModuleInfo, ParamInfo, ParamType, ScalarKind, VariableInfo, entries, module_info,
};
pub use launch_attributes::LaunchAttributes;
pub use launch_config::LaunchConfig;
pub use name::Name;
pub use notice::Notice;
pub use occupancy::{FunctionAttributes, Occupancy};
pub use operand::{HostRegion, Pattern, Region, Relocation, Use};
pub use other_error::OtherError;
pub use pool::{PoolChange, PoolMemory, PoolSpec};
pub use request::{Answer, MemoryInfo, Reply, Request};
pub use source_line::SourceLine;
pub use status::Status;
pub use ticket::{Access, Ticket};
pub use work::{Launch, Submission, Work};
