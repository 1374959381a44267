//! What new memory holds, and how much of it there is.

/// What new memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// This byte in the first [`Contents::MARKED`] bytes of every allocation, and zero behind them:
    /// a small buffer shows a missing initialisation from end to end, and a large one costs nothing
    /// until it is touched.
    Byte(u8),
}

impl Contents {
    /// How many bytes of an allocation are marked: 64 KiB.
    pub const MARKED: u64 = 64 << 10;
}

impl Default for Contents {
    fn default() -> Self {
        Self::Byte(0xFF)
    }
}

/// How much is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of allocations that nobody has freed, or asked to be freed when a stream gets there.
    pub used: u64,
    /// The most that was ever in use at a time.
    pub peak: u64,
    /// The capacity.
    pub total: u64,
    /// Live allocations.
    pub allocations: usize,
}
