//! The accesses to one word of shared memory.

use super::record::{NONE, Record};

/// Number of accesses stored in the cell itself.
pub(super) const INLINE: usize = 2;

/// The accesses to a word. Those of an earlier phase are not valid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) phase: u32,
    pub(super) count: u32,
    /// Index of the first overflow block.
    pub(super) further: u32,
    /// Mask of warps with an access to the word. Bits are not cleared when accesses are removed.
    pub(super) warps: u32,
    /// Whether there is or was a write, and whether there is or was a weak access.
    pub(super) writes: bool,
    pub(super) weak: bool,
    pub(super) first: [Record; INLINE],
}

pub(super) const EMPTY: Cell = Cell {
    phase: 0,
    count: 0,
    further: 0,
    warps: 0,
    writes: false,
    weak: false,
    first: [NONE; INLINE],
};

impl Cell {
    pub(super) fn new(phase: u32, first: Record) -> Self {
        let mut cell = Self { phase, count: 1, first: [first, NONE], ..EMPTY };
        cell.note(&first);
        cell
    }

    /// Updates the summary fields for a new access.
    pub(super) fn note(&mut self, new: &Record) {
        self.warps |= 1 << (new.warp & 31);
        self.writes |= new.writes;
        self.weak |= !new.strong;
    }
}
