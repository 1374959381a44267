//! What can go wrong with device memory.

use std::fmt;

/// There is no room for an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes of the capacity that are not in use.
    pub free: u64,
    /// The capacity.
    pub total: u64,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of device memory: {} bytes requested, {} of {} free",
            self.requested, self.free, self.total
        )
    }
}

impl std::error::Error for OutOfMemory {}

/// The allocation that lies nearest to a bad address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nearest {
    /// Its address.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes from the bad address to the allocation's nearest byte: positive when the bad address
    /// lies after the end, negative when before the start, zero when the access starts inside.
    pub distance: i64,
    /// It was freed already.
    pub freed: bool,
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let freed = if self.freed { "freed " } else { "" };
        let Self { address, size, .. } = *self;
        match self.distance {
            0 => write!(f, "inside the {freed}allocation of {} at {address:#x}", count(size)),
            distance => {
                let side = if distance > 0 { "after" } else { "before" };
                let (bytes, size) = (count(distance.unsigned_abs()), count(size));
                write!(f, "{bytes} {side} the {freed}allocation of {size} at {address:#x}")
            }
        }
    }
}

/// So many bytes.
pub(crate) fn count(bytes: u64) -> String {
    format!("{bytes} byte{}", if bytes == 1 { "" } else { "s" })
}

/// The host (or a copy) touched bytes that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessError {
    /// First byte of the access.
    pub address: u64,
    /// Bytes of the access.
    pub bytes: u64,
    /// The range was freed: use after free rather than out of bounds.
    pub freed: bool,
    /// What lies next to it.
    pub nearest: Option<Nearest>,
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.freed { "use after free" } else { "out of bounds" };
        write!(f, "{what}: {} bytes at {:#x}", self.bytes, self.address)?;
        match self.nearest {
            Some(nearest) => write!(f, ", {nearest}"),
            None => write!(f, ", nothing was ever allocated"),
        }
    }
}

impl std::error::Error for AccessError {}

/// `free` was given an address that is not the start of a live allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeError {
    /// The address given.
    pub address: u64,
    /// It was an allocation, and is freed already.
    pub freed: bool,
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why =
            if self.freed { "was freed already" } else { "is not the start of an allocation" };
        write!(f, "cannot free {:#x}: it {why}", self.address)
    }
}

impl std::error::Error for FreeError {}
