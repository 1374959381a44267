//! The pieces in which ordinary host memory is copied.

/// The number of bytes that one poll copies between ordinary and pinned memory.
pub const COPY_CHUNK: usize = 1 << 20;

/// The maximum number of bytes of pinned memory that one copy has in flight. An upload in
/// [`async_on`](crate::DeviceOp::async_on) cannot wait, so it has no limit.
pub const COPY_BYTES: usize = 16 << 20;
