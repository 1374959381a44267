//! Who accessed which word of shared memory since the last barrier of the whole block.

use super::cell::{Cell, EMPTY, INLINE};
use super::record::{NONE, Record};

/// Bytes of a word.
pub(crate) const WORD: u64 = 4;

/// Accesses that a further block of a cell holds.
const BLOCK: usize = 6;

/// Further blocks, of all cells together. When there are more, older accesses make place: a race with one of those is
/// not found.
const MAX_BLOCKS: usize = 1 << 13;

/// What a cell has no room for.
#[derive(Debug, Clone, Copy)]
struct Block {
    records: [Record; BLOCK],
    further: u32,
}

/// See the module.
pub(crate) struct Cells {
    /// From one barrier of the whole block to the next.
    phase: u32,
    words: Vec<Cell>,
    blocks: Vec<Block>,
}

impl Cells {
    /// `None` when the host has no room.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let count = bytes.div_ceil(WORD) as usize;
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize(count, EMPTY);
        Some(Self { phase: 1, words, blocks: Vec::new() })
    }

    /// The bytes on the host that it takes, with what it may grow by.
    pub(crate) fn needed(bytes: u64) -> u64 {
        // A vector that grows has up to twice the room that it needs.
        let blocks = MAX_BLOCKS as u64 * size_of::<Block>() as u64 * 2;
        bytes.div_ceil(WORD) * size_of::<Cell>() as u64 + blocks
    }

    /// All that was before is ordered before all that comes.
    pub(crate) fn forget(&mut self) {
        if self.phase == u32::MAX {
            self.words.fill(EMPTY);
            self.phase = 0;
        }
        self.phase += 1;
        self.blocks.clear();
    }

    /// The accesses of a word.
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

    /// Remembers an access that races with none, where that is plain to see: the first one of a word, a read where there
    /// are only reads, a strong one where all are strong. False where it is not, or others may have to go.
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
        // Most often it is another lane of the latest one.
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

    /// See [`Cells::add_harmless`]: the warp has accessed the word before.
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

    /// Adds lanes to an access like this one, if there is one.
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

    /// Keeps of each access what `keep` leaves of it, and adds one.
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

    /// Adds an access that is like none of those that there are.
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
            // The oldest one makes place.
            self.words[word as usize].first[0] = new;
        } else if let Some(place) = self.at(word, index) {
            *place = new;
        }
    }

    /// Sees to it that there is a block behind this many of a cell's; it may have been there before.
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

    /// The place of the `index`th access of a word.
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
    fn holds_any_number_until_it_forgets() {
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
        // Outside there is nothing.
        cells.replace(4, record(1, 1, 1), Some);
        assert_eq!(warps(&cells, 4), []);
    }

    #[test]
    fn lanes_of_one_time_and_place_are_one_record() {
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
    fn there_is_a_limit() {
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
}
