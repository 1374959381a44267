//! Operands: the memory that work reads and writes.

use std::ops::Range;

use super::{Access, AllocId, HostId};

/// A position in a device allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The allocation.
    pub alloc: AllocId,
    /// Bytes from its start.
    pub offset: u64,
}

impl Region {
    /// The use of `bytes` bytes from here on.
    pub fn used(self, bytes: u64, access: Access) -> Use {
        let range = self.offset..self.offset.saturating_add(bytes);
        Use { base: self.alloc, range, access }
    }
}

/// A position in a block of host memory. The block itself travels beside the submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRegion {
    /// The block.
    pub block: HostId,
    /// Bytes from its start.
    pub offset: u64,
}

/// One operand of a submission: which bytes of which allocation, and how they are accessed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The allocation.
    pub base: AllocId,
    /// Bytes from its start.
    pub range: Range<u64>,
    /// The access of the submission to them.
    pub access: Access,
}

/// Tells the backend to write the device address of `region`, eight bytes, at byte `at` of the launch parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// Byte offset into the parameter block.
    pub at: u32,
    /// The memory whose address it is.
    pub region: Region,
    /// Bytes that the kernel may access from there on.
    pub bytes: u64,
    /// The access of the kernel to them.
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
    /// Its size in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Pattern::Byte(_) => 1,
            Pattern::Half(_) => 2,
            Pattern::Word(_) => 4,
        }
    }
}
