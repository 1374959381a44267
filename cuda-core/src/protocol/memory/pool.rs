//! Memory pools of a device.

/// The properties of a new pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolSpec {
    /// The bytes that the pool keeps reserved from the system. See [`PoolChange::ReleaseThreshold`].
    pub release_threshold: u64,
    /// Whether the pool is of CUDA managed memory, whose pages may be on the host. A backend without
    /// [`managed_pools`](crate::protocol::Capabilities::managed_pools) ignores this and creates an ordinary pool.
    pub is_managed: bool,
}

impl PoolSpec {
    /// Returns the properties of an ordinary pool with this release threshold.
    pub const fn new(release_threshold: u64) -> Self {
        Self { release_threshold, is_managed: false }
    }

    /// Sets whether the pool is of managed memory.
    pub const fn managed(self, is_managed: bool) -> Self {
        Self { is_managed, ..self }
    }
}

/// A change to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolChange {
    /// Sets the bytes that the pool keeps reserved for later allocations. A backend returns freed memory beyond them to
    /// the system, at the latest at the next synchronization after the free has run.
    ReleaseThreshold(u64),
    /// Sets the peak of the reserved bytes to the bytes that are reserved now.
    ResetPeak,
}

/// The memory that a pool has reserved from the system, in bytes: in use, and free for its next allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolMemory {
    /// The bytes that are reserved now.
    pub reserved: u64,
    /// The largest number of reserved bytes since the pool was created, or since the last [`PoolChange::ResetPeak`].
    pub reserved_peak: u64,
    /// The bytes that the pool keeps reserved: see [`PoolChange::ReleaseThreshold`].
    pub release_threshold: u64,
}
