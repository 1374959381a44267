//! The errors of device memory.

use std::fmt;

/// The error for an allocation that exceeds the free device memory, or for which the host has no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The size of the allocation in bytes.
    pub requested: u64,
    /// The bytes that are not in use.
    pub free: u64,
    /// The capacity in bytes.
    pub total: u64,
    /// Whether the bytes fit the capacity, but the host has too little memory for them.
    pub refused_by_host: bool,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested, free, total, refused_by_host } = self;
        if *refused_by_host {
            return write!(f, "the host has no memory for an allocation of {requested} bytes");
        }
        write!(f, "out of device memory: {requested} bytes requested, {free} of {total} bytes free")
    }
}

impl std::error::Error for OutOfMemory {}

/// The allocation nearest to an invalid address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nearest {
    /// The address of the allocation.
    pub address: u64,
    /// The size of the allocation in bytes.
    pub size: u64,
    /// The distance in bytes from the allocation's nearest byte to the invalid address. It is positive after the end,
    /// negative before the start, and zero if the access starts inside.
    pub distance: i64,
    /// Whether the allocation is freed.
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

/// Formats a number of bytes: `1 byte`, `2 bytes`.
pub(crate) fn count(bytes: u64) -> String {
    format!("{bytes} byte{}", if bytes == 1 { "" } else { "s" })
}

/// The error for an access by the host, or by a copy, to bytes that are not allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessError {
    /// The address of the first byte of the access.
    pub address: u64,
    /// The size of the access in bytes.
    pub bytes: u64,
    /// Whether the range was freed. The access is then a use after free, otherwise it is out of bounds.
    pub freed: bool,
    /// The nearest allocation. `None` if nothing was allocated so far.
    pub nearest: Option<Nearest>,
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.freed { "use after free" } else { "out of bounds" };
        write!(f, "{what}: {} bytes at {:#x}", self.bytes, self.address)?;
        match self.nearest {
            Some(nearest) => write!(f, ", {nearest}"),
            None => write!(f, ", and the device has had no allocations"),
        }
    }
}

impl std::error::Error for AccessError {}

/// The error of `free` for an address that is not the start of a live allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeError {
    /// The address that was passed to `free`.
    pub address: u64,
    /// Whether an allocation at this address was freed before.
    pub freed: bool,
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.freed { "is already freed" } else { "is not the start of an allocation" };
        write!(f, "cannot free {:#x}: it {why}", self.address)
    }
}

impl std::error::Error for FreeError {}
