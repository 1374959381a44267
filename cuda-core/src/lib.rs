//! Devices, streams, memory, modules, and the one [`Backend`] trait below them.
#![deny(missing_docs)]

mod backend;
mod command;
mod device_info;
mod error;
mod external;
mod fault;
mod host_block;
mod id;
mod launch_config;
mod notice;
mod request;

pub use backend::{Backend, Provider};
pub use command::{Command, HostRegion, Launch, Pattern, Region, Relocation};
pub use device_info::DeviceInfo;
pub use error::{Error, Result};
pub use external::RawStream;
pub use fault::{Fault, FaultKind, FaultSite};
pub use host_block::HostBlock;
pub use id::{AllocId, EventId, FunctionId, HostId, ModuleId, StreamId};
pub use launch_config::LaunchConfig;
pub use notice::{Notice, NoticeSink};
pub use request::{EntryInfo, MemoryInfo, ModuleImage, ModuleInfo, ParamInfo, Reply, Request};
