//! Operations on memory: allocate, upload, download, and copies between devices.
//!
//! | to | use |
//! |---|---|
//! | allocate | [`zeros`], [`uninitialized`], [`GrowableBuffer`] |
//! | upload | [`h2d`], [`upload_into`], [`HostSlot`] for values of a graph that change |
//! | download | [`to_host`], [`to_host_into`], [`to_pinned`], [`read_back`], which gives the buffer back |
//! | write existing memory | [`fill`], [`copy`], [`upload_into`] |
//! | use a part of a buffer | [`Slice`], [`SliceMut`], [`SharedSlice`] |
//! | keep one value on the device | [`DeviceScalar`] |
//! | copy to another device | [`to_device`] |
//! | limit and watch the memory of a part of a program | [`MemoryPool`] |
//!
//! Lengths are counted in elements, as `usize`. Device memory is counted in bytes, as `u64`.
//!
//! ```
//! use cuda_async::{memory::{fill, read_back}, prelude::*};
//! let (values, buffer) = zeros::<u32>(4).then(|x| fill(x, 7)).then(read_back).sync()?;
//! assert_eq!((values, buffer.len()), (vec![7; 4], 4));
//! # Ok::<(), cuda_async::Error>(())
//! ```

// This folder uses `op`, `context` and `ops`. Programs call it directly. A typical call goes from `h2d` to
// `ExecutionContext::enqueue`, and from there to a stream of `cuda-core`.

mod allocate;
mod download;
pub(crate) mod host_copy;
mod host_slot;
mod huge_pages;
mod scalar;
mod source;
mod to_device;
mod transfer;
mod upload;

pub use allocate::{Allocate, uninitialized, zeros};
pub use cuda_core::{
    GrowableBuffer, MemoryPool, PoolOptions, PoolStatistics, SharedSlice, Slice, SliceMut,
};
pub use download::{
    BufferSource, ReadBack, ToHost, ToPinned, read_back, to_host, to_host_into, to_pinned,
};
pub use host_copy::{COPY_BYTES, COPY_CHUNK};
pub use host_slot::{HostSlot, UploadSlot};
pub use scalar::{DeviceScalar, NewScalar, ReadScalar, ScalarMut, SetScalar};
pub use source::{BufferTarget, HostSource};
pub use to_device::to_device;
pub use transfer::{Copy, Fill, UploadInto, copy, fill, upload_into};
pub use upload::{Upload, h2d};
