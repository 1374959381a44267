//! Operations on memory: allocate, upload, download, and copies between devices.

// This folder uses `op`, `context` and `ops`. Programs call it directly. A typical call goes from `h2d` to
// `ExecutionContext::enqueue`, and from there to a stream of `cuda-core`.

mod allocate;
mod chunk;
pub(crate) mod copy_job;
mod copying;
mod download;
pub(crate) mod host_copy;
mod host_slot;
mod huge_pages;
mod scalar;
mod source;
mod target;
mod to_device;
mod transfer;
mod upload;

pub use allocate::{Allocate, uninitialised, zeros};
pub use chunk::{COPY_BYTES, COPY_CHUNK};
pub use cuda_core::{
    GrowableBuffer, MemoryPool, PoolOptions, PoolStatistics, SharedSlice, Slice, SliceMut,
};
pub use download::{
    BufferSource, ReadBack, ToHost, ToPinned, read_back, to_host, to_host_into, to_pinned,
};
pub use host_slot::{HostSlot, UploadSlot};
pub use scalar::{DeviceScalar, NewScalar, ReadScalar, ScalarMut, SetScalar};
pub use source::HostSource;
pub use target::BufferTarget;
pub use to_device::to_device;
pub use transfer::{Copy, Fill, UploadInto, copy, fill, upload_into};
pub use upload::{Upload, h2d};
