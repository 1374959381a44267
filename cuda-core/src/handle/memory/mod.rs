//! Memory that users hold: buffers and slices of a device, pinned memory of the host, and copies between them.
//!
//! Uses `stream`; `kernel` uses it for arguments. Buffers and slices differ in what they own or borrow. All of them submit
//! through a [`View`], whose `upload`, `download`, `copy_from` and `fill` go to [`Stream`](super::Stream)'s `submit`.

mod buffer;
mod foreign;
mod growable;
mod host_values;
mod landing;
mod peer;
mod pinned;
mod pinning;
mod pool;
mod scalar;
mod shared_slice;
mod slice;
mod view;

pub use buffer::DeviceBuffer;
pub use foreign::ForeignCall;
pub use growable::GrowableBuffer;
pub use host_values::HostValues;
pub use landing::Landing;
pub use peer::Crossing;
pub use pinned::PinnedBuffer;
pub use pinning::Pinning;
pub use pool::{MemoryPool, PoolOptions, PoolStatistics};
pub use scalar::ScalarMemory;
pub use shared_slice::SharedSlice;
pub use slice::{Slice, SliceMut};
pub(crate) use view::View;
