//! The types that users hold: devices, streams, buffers, modules.
//!
//! Every call here enqueues at once on a stream that the caller names. Uses `runtime` and everything below it; the lazy
//! layer, `cuda-async`, is built on these types alone. A typical call, such as `DeviceBuffer::upload`, goes next to
//! [`Stream`]'s `submit`, which sends every `Work` to the backend.

mod allocate;
mod allocation;
mod arguments;
mod blocking_job;
mod buffer;
mod device;
mod event;
mod join;
mod list;
mod memory_waiter;
mod module;
mod parameter;
mod peer;
mod pinned;
mod recorder;
mod recording;
mod sent;
mod shared_slice;
mod slice;
mod stream;
mod submit;
mod turns;
mod view;

pub use allocation::Allocation;
#[cfg(all(test, loom))]
pub(crate) use allocation::Operand;
pub use arguments::Arguments;
pub use buffer::DeviceBuffer;
pub use device::Device;
pub use event::Event;
pub use memory_waiter::MemoryWaiter;
pub use module::{Function, Loading, Module};
pub use parameter::ArgumentKind;
pub use peer::Crossing;
pub use pinned::{Landing, PinnedBuffer, Pinning};
pub use recorder::MAX_RECORDED_BYTES;
pub use recording::Recording;
pub use shared_slice::SharedSlice;
pub use slice::{Slice, SliceMut};
pub use stream::Stream;
#[cfg(all(test, loom))]
pub(crate) use submit::Keep;
