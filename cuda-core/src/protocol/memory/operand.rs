//! Operands: the memory that work reads and writes.

use std::ops::Range;

use crate::protocol::{Access, AllocId, Error, HostId, Limit, Quantity};

/// A position in a device allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The allocation.
    pub alloc: AllocId,
    /// The offset in bytes from the start of the allocation.
    pub offset: u64,
}

impl Region {
    /// Returns the use of `bytes` bytes from this position on.
    pub fn used(self, bytes: u64, access: Access) -> Use {
        let range = self.offset..self.offset.saturating_add(bytes);
        Use { base: self.alloc, range, access }
    }

    /// Returns the error for `bytes` bytes from this position on, which are not all among the `size` bytes of the
    /// allocation.
    #[cold]
    pub fn outside(self, bytes: u64, size: u64) -> Error {
        let allocation = format!("a range of allocation {}", self.alloc.0);
        let (end, limit) = (self.offset.saturating_add(bytes), Limit::AtMost(size));
        Error::out_of_range(allocation, Quantity::End, end, limit)
    }
}

/// A position in a block of host memory. The block itself travels beside the submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRegion {
    /// The block.
    pub block: HostId,
    /// The offset in bytes from the start of the block.
    pub offset: u64,
}

impl HostRegion {
    /// Returns the error for `bytes` bytes from this position on, which are not all among the `size` bytes of the
    /// block.
    #[cold]
    pub fn outside(self, bytes: u64, size: u64) -> Error {
        let (end, limit) = (self.offset.saturating_add(bytes), Limit::AtMost(size));
        Error::out_of_range("a range of a block of host memory", Quantity::End, end, limit)
    }

    /// Returns the error for a submission that does not carry the block.
    #[cold]
    pub fn missing(self) -> Error {
        Error::no_such_object("block of host memory", self.block.0)
    }
}

/// One operand of a submission: bytes of an allocation, and the access to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The allocation.
    pub base: AllocId,
    /// The range of bytes in the allocation.
    pub range: Range<u64>,
    /// The access of the submission to these bytes.
    pub access: Access,
}

/// A place in the launch parameters where the backend writes the device address of a region. The address has eight
/// bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// Byte offset into the parameter block.
    pub at: u32,
    /// The region whose address is written.
    pub region: Region,
    /// The number of bytes that the kernel may access from there on.
    pub bytes: u64,
    /// The access of the kernel to these bytes.
    pub access: Access,
}

/// The value that a fill repeats: one, two or four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// One byte.
    Byte(u8),
    /// Two bytes, in native order.
    Half(u16),
    /// Four bytes, in native order.
    Word(u32),
}

impl Pattern {
    /// Returns the size in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Pattern::Byte(_) => 1,
            Pattern::Half(_) => 2,
            Pattern::Word(_) => 4,
        }
    }
}
