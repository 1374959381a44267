//! Who accessed which word of shared memory since the last barrier of the whole block.

use rustc_hash::FxHashMap;

/// Bytes of a word.
pub(crate) const WORD: u64 = 4;

/// Accesses that a cell holds itself.
const INLINE: usize = 2;

/// Accesses beyond those, in all cells of a block. When there are more, older ones are forgotten: a race with one of
/// them is not found.
const MAX_FURTHER: usize = 1 << 14;

/// An access of some lanes of a warp, in one op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) stamp: u32,
    pub(crate) pc: u32,
    pub(crate) lanes: u32,
    pub(crate) warp: u8,
    /// Which bytes of the word, by bit.
    pub(crate) bytes: u8,
    pub(crate) writes: bool,
    pub(crate) strong: bool,
}

impl Record {
    /// The first of its lanes.
    pub(crate) fn lane(&self) -> usize {
        self.lanes.trailing_zeros() as usize & 31
    }
}

const NONE: Record =
    Record { stamp: 0, pc: 0, lanes: 0, warp: 0, bytes: 0, writes: false, strong: false };

/// The accesses of a word. Those of an earlier phase mean nothing.
#[derive(Debug, Clone, Copy)]
struct Cell {
    phase: u32,
    count: u32,
    first: [Record; INLINE],
}

const EMPTY: Cell = Cell { phase: 0, count: 0, first: [NONE; INLINE] };

/// See the module.
pub(crate) struct Cells {
    /// From one barrier of the whole block to the next.
    phase: u32,
    words: Vec<Cell>,
    /// What cells have no room for.
    further: FxHashMap<u32, Vec<Record>>,
    further_count: usize,
}

impl Cells {
    /// `None` when the host has no room.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let count = bytes.div_ceil(WORD) as usize;
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize(count, EMPTY);
        Some(Self { phase: 1, words, further: FxHashMap::default(), further_count: 0 })
    }

    /// The bytes on the host that it takes, with what it may grow by.
    pub(crate) fn needed(bytes: u64) -> u64 {
        // A vector that grows has up to twice the room that it needs.
        let further = MAX_FURTHER as u64 * size_of::<Record>() as u64 * 2;
        bytes.div_ceil(WORD) * size_of::<Cell>() as u64 + further
    }

    /// All that was before is ordered before all that comes.
    pub(crate) fn forget(&mut self) {
        if self.phase == u32::MAX {
            self.words.fill(EMPTY);
            self.phase = 0;
        }
        self.phase += 1;
        self.further.clear();
        self.further_count = 0;
    }

    /// The accesses of a word.
    pub(crate) fn records(&self, word: u32) -> impl Iterator<Item = &Record> {
        let cell = self.words.get(word as usize).filter(|cell| cell.phase == self.phase);
        let count = cell.map_or(0, |cell| cell.count as usize);
        let first = cell.map_or(&[][..], |cell| &cell.first[..count.min(INLINE)]);
        let further = (count > INLINE).then(|| self.further.get(&word)).flatten();
        first.iter().chain(further.into_iter().flatten())
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
        // The same op, for another lane.
        let same = |record: &Record| Record { lanes: new.lanes, ..*record } == new;
        if cell.count as usize <= INLINE {
            let mut kept = [NONE; INLINE + 1];
            let mut count = 0;
            for record in cell.first[..cell.count as usize].iter().filter_map(|r| keep(*r)) {
                kept[count] = record;
                count += 1;
            }
            match kept[..count].iter_mut().find(|record| same(record)) {
                Some(record) => record.lanes |= new.lanes,
                None => {
                    kept[count] = new;
                    count += 1;
                }
            }
            if count <= INLINE {
                cell.count = count as u32;
                cell.first.copy_from_slice(&kept[..INLINE]);
                return;
            }
        }
        self.replace_further(word, new, keep);
    }

    #[cold]
    fn replace_further(
        &mut self,
        word: u32,
        new: Record,
        keep: impl FnMut(Record) -> Option<Record>,
    ) {
        let mut all: Vec<Record> = self.records(word).copied().filter_map(keep).collect();
        match all.iter_mut().find(|record| Record { lanes: new.lanes, ..**record } == new) {
            Some(record) => record.lanes |= new.lanes,
            None => all.push(new),
        }
        let before = self.further.remove(&word).map_or(0, |further| further.len());
        self.further_count -= before;
        let room = INLINE + MAX_FURTHER - self.further_count;
        if all.len() > room {
            all.drain(..all.len() - room);
        }
        let Some(cell) = self.words.get_mut(word as usize) else { return };
        cell.count = all.len() as u32;
        let inline = all.len().min(INLINE);
        cell.first[..inline].copy_from_slice(&all[..inline]);
        if all.len() > INLINE {
            all.drain(..INLINE);
            self.further_count += all.len();
            self.further.insert(word, all);
        }
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
        }
        cells.replace(1, record(3, 1, 1), Some);
        assert_eq!(warps(&cells, 2), (0..30).collect::<Vec<_>>());
        cells.replace(2, record(40, 1, 1), |old| (old.warp % 10 == 0).then_some(old));
        assert_eq!(warps(&cells, 2), [0, 10, 20, 40]);
        cells.replace(2, record(41, 1, 1), |old| (old.warp == 0).then_some(old));
        assert_eq!((warps(&cells, 2), cells.further_count), (vec![0, 41], 0));
        cells.forget();
        assert_eq!(warps(&cells, 2), []);
        // Outside there is nothing.
        cells.replace(4, record(1, 1, 1), Some);
        assert_eq!(warps(&cells, 4), []);
    }

    #[test]
    fn lanes_of_one_op_are_one_record() {
        let mut cells = Cells::new(4).unwrap();
        for lane in 0..32 {
            cells.replace(0, record(1, 5, 1 << lane), Some);
        }
        cells.replace(0, record(1, 6, 1), Some);
        let all: Vec<_> = cells.records(0).map(|r| (r.stamp, r.lanes)).collect();
        assert_eq!(all, [(5, u32::MAX), (6, 1)]);
    }

    #[test]
    fn there_is_a_limit() {
        let words = 200;
        let mut cells = Cells::new(words * WORD).unwrap();
        for stamp in 0..100 {
            for word in 0..words as u32 {
                cells.replace(word, record(1, stamp, 1), Some);
            }
        }
        let latest = |word| cells.records(word).last().unwrap().stamp;
        assert!((0..words as u32).all(|word| latest(word) == 99));
        assert_eq!(cells.further_count, MAX_FURTHER);
        let all: usize = (0..words as u32).map(|word| cells.records(word).count()).sum();
        assert_eq!(all, MAX_FURTHER + INLINE * words as usize);
    }
}
