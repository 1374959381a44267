//! Devices, streams, memory, modules, and the one [`Backend`] trait below them.
//!
//! This is the explicit layer: every call here enqueues at once, on a stream that you name. The lazy
//! layer on top is `cuda-async`.
#![deny(missing_docs)]

mod allocation;
mod arguments;
mod backend;
mod buffer;
mod command;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod device_info;
mod element;
mod entries;
mod error;
mod event;
mod event_pool;
mod external;
mod fault;
mod hazard;
mod host_block;
mod host_pool;
mod id;
mod implied;
mod inbox;
mod launch_config;
#[cfg(all(test, loom))]
mod loom_models;
mod memory_waiter;
mod module;
mod notice;
mod notices;
mod peer;
mod pinned;
mod progress;
mod reclaim;
mod request;
mod retained;
mod source_line;
mod spare_streams;
mod stream;
mod stream_state;
#[doc(hidden)]
pub mod sync;
mod wakes;

pub use allocation::Allocation;
pub use arguments::{ArgumentKind, Arguments};
pub use backend::{Backend, Provider};
pub use buffer::DeviceBuffer;
pub use command::{Command, HostRegion, Launch, Pattern, PeerRegion, Region, Relocation};
pub use device::Device;
pub use device_info::DeviceInfo;
pub use element::Element;
pub use entries::entry_params;
pub use error::{Error, Result};
pub use event::Event;
pub use external::RawStream;
pub use fault::{Fault, FaultKind, FaultSite};
pub use hazard::{Access, MAX_READERS, Ticket};
pub use host_block::HostBlock;
pub use host_pool::HOST_POOL_LIMIT;
pub use id::{AllocId, EventId, FunctionId, HostId, ModuleId, StreamId};
pub use launch_config::LaunchConfig;
pub use memory_waiter::MemoryWaiter;
pub use module::{Function, Module};
pub use notice::{Notice, NoticeSink};
pub use peer::Crossing;
pub use pinned::{Landing, PinnedBuffer};
pub use progress::Waiter;
pub use request::{EntryInfo, MemoryInfo, ModuleImage, ModuleInfo, ParamInfo, Reply, Request};
pub use retained::{MAX_RETAINED, MAX_RETAINED_BYTES};
pub use source_line::SourceLine;
pub use stream::{MAX_IN_FLIGHT, Stream};
#[doc(hidden)]
pub use wakes::{discard_panic, wake_each};
