//! Who accessed a word of shared memory.

use super::record::{NONE, Record};

/// Accesses that a cell holds itself.
pub(super) const INLINE: usize = 2;

/// The accesses of a word. Those of an earlier phase mean nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) phase: u32,
    pub(super) count: u32,
    /// The first further block.
    pub(super) further: u32,
    /// The warps that some of them are of, or have been.
    pub(super) warps: u32,
    /// Some of them are writes, or weak; or have been.
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

    /// There is a further one.
    pub(super) fn note(&mut self, new: &Record) {
        self.warps |= 1 << (new.warp & 31);
        self.writes |= new.writes;
        self.weak |= !new.strong;
    }
}
