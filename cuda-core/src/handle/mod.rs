//! The types that users hold: devices, streams, buffers, modules.
//!
//! Calls that submit work enqueue it immediately on the stream that the caller names. This folder uses `runtime` and
//! everything below it. The lazy layer, `cuda-async`, uses these types, the data of `protocol` and `sync`.
//!
//! [`Device`] is the lowest. Every submission goes through `stream`. `memory` submits copies and fills, and `kernel`
//! submits launches. `recording` replays recorded work. A typical call, such as `DeviceBuffer::upload`, goes from
//! `memory` to `stream/submit.rs`, and from there to the backend.

mod device;
mod kernel;
mod memory;
mod recording;
mod stream;

pub use device::{Backlog, Device, MemoryWaiter, WeakDevice};
pub use kernel::{ArgumentKind, Arguments, CachedModule, Function, Loading, Module};
pub use memory::{
    DeviceBuffer, Download, ForeignCall, GrowableBuffer, HostValues, MemoryPool, PeerCopy,
    PinnedBuffer, Pinning, PoolOptions, PoolStatistics, ScalarMemory, SharedSlice, Slice, SliceMut,
    allocating_in, idle_pinned,
};
pub use recording::{
    LaunchResources, MAX_INSTANCES, RecordedNode, Recording, end_plan, start_plan,
};
pub use stream::{
    Allocation, CapturePool, Credit, Event, MAX_RECORDED_BYTES, RecordedName, Stream, Window,
    cancel, check_not_lost, join_parts, lend_branch, name_recorded, report_before_others,
    request_report,
};
#[cfg(all(test, loom))]
pub(crate) use stream::{Attached, Keep, Operand};
