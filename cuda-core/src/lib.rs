//! Devices, streams, memory, modules, and the protocol between them and a device.
//!
//! This is the explicit layer: calls that submit work enqueue it immediately on the stream that the caller names. The
//! lazy layer on top is `cuda-async`. Implementers of a device start at [`protocol`]; `cuda-driver` (NVIDIA GPUs),
//! `cuda-cpu` and `cuda-lease` are such devices.
//!
//! | module | contents |
//! |---|---|
//! | [`protocol`] | the data and traits between client and device |
//! | [`order`] | ordering rules that backends share: [`order::Poison`] |
//!
//! The types that users hold are at the root:
//!
//! | topic | types |
//! |---|---|
//! | devices and streams | [`Device`], [`Stream`], [`Event`] |
//! | memory | [`DeviceBuffer`], [`Slice`], [`SliceMut`], [`PinnedBuffer`], [`MemoryPool`] |
//! | kernels | [`Module`], [`Function`], [`LaunchConfig`] |
//! | errors | [`Error`], [`Misuse`], [`Limit`], [`Feature`], [`Fault`] |
#![deny(missing_docs)]

mod handle;
#[doc(hidden)]
mod id_map;
pub mod internals;
#[cfg(all(test, loom))]
mod loom_models;
pub mod order;
pub mod protocol;
mod runtime;
mod sync;

pub use handle::{
    Allocation, ArgumentKind, Arguments, Backlog, CachedModule, CapturePool, Credit, Device,
    DeviceBuffer, Download, Event, ForeignCall, Function, GrowableBuffer, HostValues, Loading,
    MemoryPool, MemoryWaiter, Module, PeerCopy, PinnedBuffer, Pinning, PoolOptions, PoolStatistics,
    ScalarMemory, SharedSlice, Slice, SliceMut, Stream, WeakDevice,
};
pub use order::{MAX_READERS, MAX_RETAINED, MAX_RETAINED_BYTES, Waiter};
pub use protocol::{
    Access, Backend, DeviceInfo, Element, EntryInfo, Error, ExpectedShape, Fault, FaultKind,
    FaultSite, Feature, ForeignOwner, FunctionAttributes, GraphCacheInfo, LaunchConfig, Limit,
    MemoryConflict, MemoryInfo, Misuse, NoticeSink, Occupancy, ParamInfo, Provider, Quantity,
    RawStream, Result, SourceLine, Ticket, VariableInfo,
};
pub use runtime::{HOST_POOL_LIMIT, Pending};
