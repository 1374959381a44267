//! The pieces in which ordinary host memory is copied.

/// The number of bytes that one poll copies between ordinary and pinned memory.
pub const COPY_CHUNK: usize = 1 << 20;

/// The number of bytes of pinned memory that one copy may have in flight.
pub const COPY_BYTES: usize = 16 << 20;
