//! Invalid uses of mbarriers.

/// An invalid use of an mbarrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MbarrierMisuse {
    /// The mbarrier was not initialized, or has been invalidated.
    NotInitialized,
    /// The count is 0, or above 2^20 - 1.
    Count(u32),
    /// The arrivals exceed those that are pending in this phase.
    TooManyArrivals {
        /// The number of pending arrivals.
        pending: u32,
        /// The number of new arrivals.
        count: u32,
    },
    /// The arrival would complete the phase, but has `.noComplete`.
    Completes,
    /// The pending bytes are above 2^20 - 1, or below -(2^20 - 1).
    Bytes(i64),
}
