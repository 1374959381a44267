//! The accesses to each word of shared memory since the last barrier of the whole block, and the words that an op
//! accesses.

use crate::fault::FaultSpace;
use crate::lanes::lanes_of;
use crate::observe::places::Places;

/// Size of a word in bytes.
pub(crate) const WORD: u64 = 4;

/// Number of accesses in an overflow block.
const BLOCK: usize = 6;

/// Maximum number of overflow blocks of all cells together. Beyond it, new accesses replace older ones, and races with
/// the replaced ones are not found.
const MAX_BLOCKS: usize = 1 << 13;

/// The cells of a block's shared memory.
pub(crate) struct Cells {
    /// Number of the phase, which lasts from one barrier of the whole block to the next.
    phase: u32,
    words: Vec<Cell>,
    blocks: Vec<Block>,
}

impl Cells {
    /// Returns `None` if the host has no memory.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let count = bytes.div_ceil(WORD) as usize;
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize(count, EMPTY);
        Some(Self { phase: 1, words, blocks: Vec::new() })
    }

    /// Returns the host memory that the cells take, in bytes, including their maximum growth.
    pub(crate) fn needed(bytes: u64) -> u64 {
        // A growing vector has up to twice the required capacity.
        let blocks = MAX_BLOCKS as u64 * size_of::<Block>() as u64 * 2;
        bytes.div_ceil(WORD) * size_of::<Cell>() as u64 + blocks
    }

    /// Starts a new phase. All earlier accesses are ordered before all later ones.
    pub(crate) fn forget(&mut self) {
        if self.phase == u32::MAX {
            self.words.fill(EMPTY);
            self.phase = 0;
        }
        self.phase += 1;
        self.blocks.clear();
    }

    /// Iterates over the accesses to a word.
    #[inline]
    pub(crate) fn records(&self, word: u32) -> impl Iterator<Item = &Record> {
        let cell = self.words.get(word as usize).filter(|cell| cell.phase == self.phase);
        let mut left = cell.map_or(0, |cell| cell.count as usize);
        let mut records = cell.map_or(&[][..], |cell| &cell.first[..]);
        let mut further = cell.map_or(0, |cell| cell.further);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            if records.is_empty() {
                let block = self.blocks.get(further as usize)?;
                (records, further) = (&block.records, block.further);
            }
            let (first, rest) = records.split_first()?;
            records = rest;
            Some(first)
        })
    }

    /// Records an access that obviously races with none: the first access to a word, a read if there are only reads, or
    /// a strong access if all are strong. Returns false if it is not obvious, or if older records may have to be
    /// removed.
    #[inline]
    pub(crate) fn add_harmless(&mut self, word: u32, new: Record) -> bool {
        let phase = self.phase;
        let Some(cell) = self.words.get_mut(word as usize) else { return true };
        if cell.phase != phase {
            *cell = Cell::new(phase, new);
            return true;
        }
        let harmless = if new.strong { !cell.weak } else { !new.writes && !cell.writes };
        if !harmless {
            return false;
        }
        let (warps, count) = (cell.warps, cell.count as usize);
        // In most cases this is another lane of the latest access.
        if let Some(latest) = self.at(word, count.saturating_sub(1)).filter(|r| r.is_like(&new)) {
            latest.lanes |= new.lanes;
            return true;
        }
        if warps >> (new.warp & 31) & 1 == 0 {
            self.push(word, new);
            return true;
        }
        self.add_to_own(word, new)
    }

    /// Continues [`Cells::add_harmless`] for a warp that has accessed the word before.
    fn add_to_own(&mut self, word: u32, new: Record) -> bool {
        let mut like = None;
        for (at, r) in self.records(word).enumerate() {
            if r.is_like(&new) {
                like = Some(at);
            } else if r.warp == new.warp && r.strong == new.strong && r.lanes & new.lanes != 0 {
                return false;
            }
        }
        match like.and_then(|at| self.at(word, at)) {
            Some(record) => record.lanes |= new.lanes,
            None => self.push(word, new),
        }
        true
    }

    /// Adds lanes to an equal access. Returns false if there is none.
    #[inline]
    pub(crate) fn join(&mut self, word: u32, new: Record) -> bool {
        let Some(at) = self.records(word).position(|record| record.is_like(&new)) else {
            return false;
        };
        self.at(word, at).is_some_and(|record| {
            record.lanes |= new.lanes;
            true
        })
    }

    /// Replaces each access by the result of `keep`, and adds one.
    pub(crate) fn replace(
        &mut self,
        word: u32,
        new: Record,
        mut keep: impl FnMut(Record) -> Option<Record>,
    ) {
        let phase = self.phase;
        let Some(cell) = self.words.get_mut(word as usize) else { return };
        if cell.phase != phase {
            *cell = Cell { phase, ..EMPTY };
        }
        let count = cell.count as usize;
        let mut kept = 0;
        for index in 0..count {
            let Some(record) = self.at(word, index).and_then(|record| keep(*record)) else {
                continue;
            };
            if let Some(place) = self.at(word, kept) {
                *place = record;
            }
            kept += 1;
        }
        self.words[word as usize].count = kept as u32;
        if !self.join(word, new) {
            self.push(word, new);
        }
    }

    /// Adds an access that differs from the existing ones.
    #[inline]
    fn push(&mut self, word: u32, new: Record) {
        let phase = self.phase;
        let Some(cell) = self.words.get_mut(word as usize) else { return };
        if cell.phase != phase {
            *cell = Cell { phase, ..EMPTY };
        }
        let index = cell.count as usize;
        cell.count += 1;
        cell.note(&new);
        let needs_block = index >= INLINE && (index - INLINE).is_multiple_of(BLOCK);
        if index < INLINE {
            cell.first[index] = new;
        } else if needs_block && !self.add_block(word, (index - INLINE) / BLOCK) {
            self.words[word as usize].count -= 1;
            // The new access replaces the oldest one.
            self.words[word as usize].first[0] = new;
        } else if let Some(place) = self.at(word, index) {
            *place = new;
        }
    }

    /// Ensures that an overflow block exists after the first `before` ones of a cell. Returns false at the maximum.
    fn add_block(&mut self, word: u32, before: usize) -> bool {
        let (new, mut last) = (self.blocks.len(), None);
        let mut next = self.words[word as usize].further;
        for _ in 0..before {
            last = Some(next);
            next = self.blocks[next as usize].further;
        }
        if new >= MAX_BLOCKS {
            return false;
        }
        self.blocks.push(Block { records: [NONE; BLOCK], further: 0 });
        match last {
            Some(last) => self.blocks[last as usize].further = new as u32,
            None => self.words[word as usize].further = new as u32,
        }
        true
    }

    /// Returns the record of the `index`th access to a word.
    #[inline]
    fn at(&mut self, word: u32, index: usize) -> Option<&mut Record> {
        let cell = self.words.get_mut(word as usize)?;
        let Some(behind) = index.checked_sub(INLINE) else { return Some(&mut cell.first[index]) };
        let mut block = cell.further;
        for _ in 0..behind / BLOCK {
            block = self.blocks.get(block as usize)?.further;
        }
        self.blocks.get_mut(block as usize).map(|block| &mut block.records[behind % BLOCK])
    }
}

/// Accesses that do not fit in a cell.
#[derive(Debug, Clone, Copy)]
struct Block {
    records: [Record; BLOCK],
    further: u32,
}

/// Number of accesses stored in the cell itself.
const INLINE: usize = 2;

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
    weak: bool,
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
    fn note(&mut self, new: &Record) {
        self.warps |= 1 << (new.warp & 31);
        self.writes |= new.writes;
        self.weak |= !new.strong;
    }
}

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

/// Bytes of a word as a mask, and the lanes that access exactly these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accessed {
    pub(crate) word: u32,
    pub(crate) bytes: u8,
    pub(crate) lanes: u32,
}

/// The accessed words of an op. The buffer is reused for the next op.
#[derive(Default)]
pub(crate) struct Words {
    all: Vec<Accessed>,
    /// End of the highest word so far.
    end: u32,
    /// Position at which the next word is expected. Most ops access consecutive words, once or repeatedly.
    next: usize,
}

impl Words {
    /// Returns the words that these lanes access, `bytes` bytes each.
    pub(crate) fn find(&mut self, places: &Places, lanes: u32, bytes: u32) -> &[Accessed] {
        self.all.clear();
        (self.end, self.next) = (0, 0);
        for lane in lanes_of(places.lanes(FaultSpace::Shared) & lanes) {
            let at = places.of_lane(lane);
            for_words(at, bytes, |word, mask| self.add(word, mask, lane));
        }
        &self.all
    }

    #[inline]
    fn add(&mut self, word: u32, bytes: u8, lane: usize) {
        let lanes = 1 << lane;
        let is_it = |own: &Accessed| (own.word, own.bytes) == (word, bytes);
        let likely = [self.next.wrapping_sub(1), self.next];
        let known = likely.into_iter().find(|&at| self.all.get(at).is_some_and(is_it));
        let known = match known {
            None if word < self.end => self.all.iter().position(is_it),
            known => known,
        };
        let at = known.unwrap_or(self.all.len());
        match self.all.get_mut(at) {
            Some(own) => own.lanes |= lanes,
            None => self.all.push(Accessed { word, bytes, lanes }),
        }
        self.end = self.end.max(word + 1);
        self.next = at + 1;
    }
}

/// Calls `each` for every word of an access, with the mask of its bytes.
#[inline]
pub(crate) fn for_words(at: u64, bytes: u32, mut each: impl FnMut(u32, u8)) {
    let bytes = u64::from(bytes);
    if bytes == WORD {
        return each((at / WORD) as u32, 15);
    }
    for word in at / WORD..(at + bytes).div_ceil(WORD) {
        let (low, high) = (at.max(word * WORD), (at + bytes).min((word + 1) * WORD));
        let mask = (((1u32 << (high - low)) - 1) << (low % WORD)) as u8;
        each(word as u32, mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(warp: u8, stamp: u32, lanes: u32) -> Record {
        Record { stamp, pc: 7, lanes, warp, bytes: 15, writes: false, strong: false }
    }

    fn warps(cells: &Cells, word: u32) -> Vec<u8> {
        cells.records(word).map(|record| record.warp).collect()
    }

    #[test]
    fn holds_many_accesses_until_the_phase_ends() {
        let mut cells = Cells::new(16).unwrap();
        for warp in 0..30 {
            cells.replace(2, record(warp, 1, 1), Some);
            cells.replace(3, record(warp + 100, 1, 1), Some);
        }
        cells.replace(1, record(3, 1, 1), Some);
        assert_eq!(warps(&cells, 2), (0..30).collect::<Vec<_>>());
        assert_eq!(warps(&cells, 3), (100..130).collect::<Vec<_>>());
        cells.replace(2, record(40, 1, 1), |old| (old.warp % 10 == 0).then_some(old));
        assert_eq!(warps(&cells, 2), [0, 10, 20, 40]);
        for warp in 50..70 {
            cells.replace(2, record(warp, 1, 1), |old| (old.warp != 10).then_some(old));
        }
        assert_eq!(warps(&cells, 2), [0, 20, 40].into_iter().chain(50..70).collect::<Vec<_>>());
        assert_eq!(warps(&cells, 3), (100..130).collect::<Vec<_>>());
        cells.forget();
        assert_eq!(warps(&cells, 2), []);
        // Accesses outside are ignored.
        cells.replace(4, record(1, 1, 1), Some);
        assert_eq!(warps(&cells, 4), []);
    }

    #[test]
    fn equal_accesses_of_lanes_share_a_record() {
        let mut cells = Cells::new(4).unwrap();
        for lane in 0..32 {
            cells.replace(0, record(1, 5, 1 << lane), Some);
        }
        cells.replace(0, record(1, 6, 1), Some);
        cells.replace(0, Record { pc: 8, ..record(1, 6, 2) }, Some);
        let all: Vec<_> = cells.records(0).map(|r| (r.stamp, r.pc, r.lanes)).collect();
        assert_eq!(all, [(5, 7, u32::MAX), (6, 7, 1), (6, 8, 2)]);
    }

    #[test]
    fn overflow_blocks_are_limited() {
        let words = 1000;
        let mut cells = Cells::new(words * WORD).unwrap();
        for stamp in 0..100 {
            for word in 0..words as u32 {
                cells.replace(word, record(1, stamp, 1), Some);
            }
        }
        let has_latest = |word| cells.records(word).any(|record| record.stamp == 99);
        assert!((0..words as u32).all(has_latest));
        assert_eq!(cells.blocks.len(), MAX_BLOCKS);
        let all: usize = (0..words as u32).map(|word| cells.records(word).count()).sum();
        assert!(all > MAX_BLOCKS * (BLOCK - 1), "{all}");
    }

    fn words(lanes: &[(u32, u8)]) -> Vec<(u32, u8, u32)> {
        let mut words = Words::default();
        for (lane, &(word, bytes)) in lanes.iter().enumerate() {
            words.add(word, bytes, lane);
        }
        words.all.iter().map(|own| (own.word, own.bytes, own.lanes)).collect()
    }

    #[test]
    fn lanes_with_equal_bytes_form_groups() {
        assert_eq!(words(&[(7, 15); 3]), [(7, 15, 0b111)]);
        assert_eq!(words(&[(1, 15), (2, 15), (1, 15), (2, 15)]), [(1, 15, 5), (2, 15, 10)]);
        assert_eq!(
            words(&[(9, 15), (4, 15), (9, 15), (4, 3)]),
            [(9, 15, 5), (4, 15, 2), (4, 3, 8)]
        );
        assert_eq!(words(&[(1, 1), (1, 2), (1, 1), (1, 2)]), [(1, 1, 5), (1, 2, 10)]);
    }
}
