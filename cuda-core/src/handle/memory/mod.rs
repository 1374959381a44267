//! Memory that users hold: buffers and slices of a device, pinned memory of the host, and copies between them.
//!
//! This folder uses `stream`, and `kernel` uses this folder for arguments. Buffers and slices differ in the memory that
//! they own or borrow. All of them submit through a [`View`], whose `upload`, `download`, `copy_from` and `fill` go to
//! [`Stream`](super::Stream)'s `submit`.

mod buffer;
mod foreign;
mod growable;
mod host_values;
mod peer;
mod pinned;
mod pool;
mod scalar;

pub(crate) use buffer::View;
pub use buffer::{DeviceBuffer, SharedSlice, Slice, SliceMut};
pub use foreign::ForeignCall;
pub use growable::GrowableBuffer;
pub use host_values::HostValues;
pub use peer::PeerCopy;
pub use pinned::{Download, PinnedBuffer, Pinning, idle_pinned};
pub use pool::{MemoryPool, PoolOptions, PoolStatistics, allocating_in};
pub use scalar::ScalarMemory;
