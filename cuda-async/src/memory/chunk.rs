//! The chunks in which ordinary host memory is copied.

/// The number of bytes that are copied through one block of pinned memory, and in one poll.
pub const COPY_CHUNK: usize = 1 << 20;

/// The number of blocks of one copy that may be in flight.
pub const COPY_WINDOW: usize = 16;

/// Returns the number of elements in a chunk.
pub(crate) const fn chunk_elements<T>() -> usize {
    match size_of::<T>() {
        0 => usize::MAX,
        size if size > COPY_CHUNK => 1,
        size => COPY_CHUNK / size,
    }
}
