//! Tracks which bytes are written.
//!
//! There is a bit for each byte of the block's shared memory and of each lane's local memory. Allocations contain the
//! bits of global memory.

use super::places::Places;
use crate::fault::FaultSpace;
use crate::isa::operand::Passed;
use crate::lanes::{LANES, lanes_of};
use crate::machine::budget::Budget;
use crate::machine::ctx::Ctx;
use crate::memory::Allocation;
use crate::memory::written::words;

/// The written bytes of a block's own memory.
pub(crate) struct Written {
    shared: Bits,
    shared_bytes: u64,
    /// For each warp, its local memory.
    local: Vec<Local>,
}

/// The local memory of a warp, by lane.
struct Local(Vec<Bits>);

/// A contiguous range of addresses, of one or more lanes.
struct Run {
    at: u64,
    end: u64,
}

impl Written {
    /// Returns `None` if the host has no memory.
    pub(crate) fn new(warps: u64, shared: u64, local: u64) -> Option<Self> {
        let lane = |_| Bits::new(local);
        let warp = |_| Some(Local((0..LANES).map(lane).collect::<Option<_>>()?));
        let local = (0..warps).map(warp).collect::<Option<_>>()?;
        Some(Self { shared: Bits::new(shared)?, shared_bytes: shared, local })
    }

    /// Returns the host memory that a new tracker takes, in bytes.
    pub(crate) fn needed(warps: u64, shared: u64, local: u64) -> u64 {
        Bits::needed(shared) + warps * LANES as u64 * Bits::needed(local)
    }

    /// Returns the host memory that the tracker takes, in bytes.
    pub(crate) fn taken(&self) -> u64 {
        let local = self.local.iter().flat_map(|local| &local.0);
        self.shared.taken() + local.map(Bits::taken).sum::<u64>()
    }

    /// Marks all bytes as unwritten for a new block.
    pub(crate) fn restart(&mut self) {
        self.shared.clear_all();
        self.local.iter_mut().flat_map(|local| &mut local.0).for_each(Bits::clear_all);
    }

    /// Returns whether a lane accesses a byte that was never written.
    pub(crate) fn misses_some(
        &mut self,
        ctx: &mut Ctx<'_>,
        warp: u32,
        bytes: u64,
        places: &Places,
    ) -> bool {
        runs(places, FaultSpace::Global, bytes).any(|run| {
            let length = run.end - run.at;
            match ctx.view.allocation(run.at, length) {
                Ok(allocation) => misses(allocation, run.at, length),
                // The range spans several allocations, or exceeds one.
                Err(_) => (run.at..run.end)
                    .step_by(bytes as usize)
                    .any(|at| ctx.view.allocation(at, bytes).is_ok_and(|a| misses(a, at, bytes))),
            }
        }) || self.shared.count() < self.shared_bytes
            && runs(places, FaultSpace::Shared, bytes)
                .any(|run| self.shared.first_clear(run.at, run.end - run.at).is_some())
            || self.local.get(warp as usize).is_some_and(|local| {
                let mut lanes = places.of(FaultSpace::Local);
                lanes.any(|(lane, at)| local.0[lane].first_clear(at, bytes).is_some())
            })
    }

    /// Returns whether one of the bytes in the mask `used` was never written.
    pub(crate) fn misses(
        &mut self,
        ctx: &mut Ctx<'_>,
        (warp, lane): (u32, usize),
        (space, at): (FaultSpace, u64),
        (bytes, used): (u64, u64),
    ) -> bool {
        (0..bytes).filter(|i| used >> i & 1 != 0).map(|i| at + i).any(|at| match space {
            FaultSpace::Global => ctx.view.allocation(at, 1).is_ok_and(|a| misses(a, at, 1)),
            FaultSpace::Shared => self.shared.first_clear(at, 1).is_some(),
            FaultSpace::Local => {
                let local = self.local.get(warp as usize);
                local.is_some_and(|local| local.0[lane].first_clear(at, 1).is_some())
            }
            FaultSpace::Param => false,
        })
    }

    /// Marks bytes of shared or local memory as unwritten, after a lane has stored an unwritten value.
    pub(crate) fn unmark(
        &mut self,
        (warp, lane): (u32, usize),
        (space, at): (FaultSpace, u64),
        bytes: u64,
    ) {
        match (space, self.local.get_mut(warp as usize)) {
            (FaultSpace::Shared, _) => self.shared.clear(at, bytes),
            (FaultSpace::Local, Some(local)) => local.0[lane].clear(at, bytes),
            _ => {}
        }
    }

    /// Marks the bytes that the lanes write.
    pub(crate) fn mark(&mut self, ctx: &mut Ctx<'_>, warp: u32, bytes: u64, places: &Places) {
        for run in runs(places, FaultSpace::Global, bytes) {
            match ctx.view.allocation(run.at, run.end - run.at) {
                Ok(allocation) => allocation.mark(run.at, run.end - run.at),
                Err(_) => (run.at..run.end).step_by(bytes as usize).for_each(|at| {
                    if let Ok(allocation) = ctx.view.allocation(at, bytes) {
                        allocation.mark(at, bytes);
                    }
                }),
            }
        }
        for run in runs(places, FaultSpace::Shared, bytes) {
            self.shared.set(run.at, run.end - run.at);
        }
        if let Some(local) = self.local.get_mut(warp as usize) {
            places.of(FaultSpace::Local).for_each(|(lane, at)| local.0[lane].set(at, bytes));
        }
    }

    /// Marks a part of these lanes' local memory as unwritten. Returns false if there is no room.
    #[must_use]
    pub(crate) fn give(
        &mut self,
        warp: u32,
        lanes: u32,
        (base, bytes): (u32, u32),
        budget: &Budget,
    ) -> bool {
        let Some(local) = self.local.get_mut(warp as usize) else { return true };
        let (base, bytes) = (u64::from(base), u64::from(bytes));
        lanes_of(lanes).all(|lane| {
            let bits = &mut local.0[lane];
            let room = budget.take(Bits::needed(base + bytes).saturating_sub(bits.taken()))
                && bits.grow(base + bytes);
            bits.clear(base, bytes);
            room
        })
    }

    /// Copies the marks of arguments or results between frames. Values from registers count as written.
    pub(crate) fn pass(
        &mut self,
        warp: u32,
        lanes: u32,
        from: (u32, &[Passed]),
        to: (u32, &[Passed]),
    ) {
        let Some(local) = self.local.get_mut(warp as usize) else { return };
        for (source, target) in from.1.iter().zip(to.1) {
            let &Passed::Local(target, size) = target else { continue };
            let target = u64::from(to.0 + target);
            for lane in lanes_of(lanes) {
                let bits = &mut local.0[lane];
                match *source {
                    Passed::Local(at, bytes) => {
                        let at = u64::from(from.0 + at);
                        let written = |i: &u64| bits.first_clear(at + i, 1).is_none();
                        let written: Vec<_> =
                            (0..u64::from(size.min(bytes))).filter(written).collect();
                        written.into_iter().for_each(|i| bits.set(target + i, 1));
                    }
                    Passed::Register(..) => bits.set(target, u64::from(size)),
                }
            }
        }
    }

    /// Marks the results of a builtin function as written.
    pub(crate) fn returned(&mut self, warp: u32, lanes: u32, base: u32, results: &[Passed]) {
        let Some(local) = self.local.get_mut(warp as usize) else { return };
        for result in results {
            let &Passed::Local(at, size) = result else { continue };
            let at = u64::from(base + at);
            lanes_of(lanes).for_each(|lane| local.0[lane].set(at, u64::from(size)));
        }
    }
}

/// Iterates over the accesses to a space. Contiguous accesses are merged.
fn runs(places: &Places, space: FaultSpace, bytes: u64) -> impl Iterator<Item = Run> {
    let mut lanes = places.of(space).map(|(_, at)| at).peekable();
    std::iter::from_fn(move || {
        let at = lanes.next()?;
        let mut end = at.checked_add(bytes)?;
        while let Some(&next) = lanes.peek()
            && (next == end || next == end - bytes)
        {
            end = next.checked_add(bytes)?;
            lanes.next();
        }
        Some(Run { at, end })
    })
}

fn misses(allocation: &Allocation, at: u64, bytes: u64) -> bool {
    let written = allocation.written.as_deref();
    written.is_some_and(|written| written.first_missing(at - allocation.base, bytes).is_some())
}

/// A bit set. Bits beyond the end are clear and cannot be set.
#[derive(Debug, Default, Clone)]
pub(crate) struct Bits {
    words: Vec<u64>,
    set: u64,
}

impl Bits {
    /// Returns `None` if the host has no memory.
    pub(crate) fn new(bits: u64) -> Option<Self> {
        let mut new = Self::default();
        new.grow(bits).then_some(new)
    }

    /// Grows to this number of bits. Returns false if the host has no memory.
    #[must_use]
    pub(crate) fn grow(&mut self, bits: u64) -> bool {
        let words = bits.div_ceil(64) as usize;
        let more = words.saturating_sub(self.words.len());
        if self.words.try_reserve_exact(more).is_err() {
            return false;
        }
        self.words.resize(words.max(self.words.len()), 0);
        true
    }

    /// Returns the host memory for this number of bits, in bytes.
    pub(crate) fn needed(bits: u64) -> u64 {
        bits.div_ceil(64) * 8
    }

    /// Returns the host memory that the set takes, in bytes.
    pub(crate) fn taken(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    fn clear_all(&mut self) {
        if std::mem::take(&mut self.set) != 0 {
            self.words.fill(0);
        }
    }

    /// Returns the number of set bits.
    pub(crate) fn count(&self) -> u64 {
        self.set
    }

    pub(crate) fn set(&mut self, from: u64, bits: u64) {
        for (word, mask) in words(from, bits) {
            let Some(word) = self.words.get_mut(word) else { return };
            self.set += u64::from((mask & !*word).count_ones());
            *word |= mask;
        }
    }

    pub(crate) fn clear(&mut self, from: u64, bits: u64) {
        for (word, mask) in words(from, bits) {
            let Some(word) = self.words.get_mut(word) else { return };
            self.set -= u64::from((mask & *word).count_ones());
            *word &= !mask;
        }
    }

    /// Returns the first clear bit in the range.
    fn first_clear(&self, from: u64, bits: u64) -> Option<u64> {
        words(from, bits).find_map(|(index, mask)| {
            let clear = mask & !self.words.get(index)?;
            (clear != 0).then(|| index as u64 * 64 + u64::from(clear.trailing_zeros()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_and_clears_each_bit() {
        let mut bits = Bits::new(100).unwrap();
        bits.set(10, 80);
        bits.set(20, 10);
        bits.clear(63, 2);
        assert_eq!(bits.count(), 78);
        assert_eq!(bits.first_clear(10, 53), None);
        assert_eq!(bits.first_clear(10, 80), Some(63));
        assert_eq!(bits.first_clear(65, 30), Some(90));
        bits.set(1000, 4);
        assert!(bits.grow(2000));
        assert_eq!(bits.first_clear(1000, 4), Some(1000));
        assert_eq!(bits.first_clear(10, 50), None);
    }
}
