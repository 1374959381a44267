//! The record of an access.

/// An access of some lanes of a warp by one op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) stamp: u32,
    pub(crate) pc: u32,
    pub(crate) lanes: u32,
    pub(crate) warp: u8,
    /// Mask of the accessed bytes of the word.
    pub(crate) bytes: u8,
    pub(crate) writes: bool,
    pub(crate) strong: bool,
}

impl Record {
    /// Returns the lowest of its lanes.
    pub(crate) fn lane(&self) -> usize {
        self.lanes.trailing_zeros() as usize & 31
    }

    /// Returns whether both are equal except for the lanes.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        Self { lanes: self.lanes, ..*other } == *self
    }
}

pub(super) const NONE: Record =
    Record { stamp: 0, pc: 0, lanes: 0, warp: 0, bytes: 0, writes: false, strong: false };
