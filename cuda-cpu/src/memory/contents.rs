//! The initial contents of device memory, and its usage.

/// The initial contents of new allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// This byte in the first [`Contents::MARKED`] bytes of every allocation, and zeros after them. A small buffer without
    /// initialization is detected in its whole length, and a large buffer takes no host memory until it is accessed.
    Byte(u8),
}

impl Contents {
    /// The number of bytes at the start of an allocation that [`Contents::Byte`] sets: 64 KiB.
    pub const MARKED: u64 = 64 << 10;
}

impl Default for Contents {
    fn default() -> Self {
        Self::Byte(0xFF)
    }
}

/// The usage of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// The bytes of allocations that are not freed and for which no free is submitted.
    pub used: u64,
    /// The maximum number of bytes in use so far.
    pub peak: u64,
    /// The capacity in bytes.
    pub total: u64,
    /// The number of live allocations.
    pub allocations: usize,
}
