//! Arrival counts of the sixteen named barriers of a block. `barriers` parks and releases the fragments.

use smallvec::SmallVec;

use crate::isa::barrier::Reduce;
use crate::lanes::{FULL, LANES};

/// The operands with which threads arrive at a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Purpose {
    /// The thread count operand. `None` means all threads of the block that have not exited.
    pub(crate) threads: Option<u32>,
    /// For `bar.red`: the operation that combines the predicates.
    pub(crate) reduces: Option<Reduce>,
}

/// The threads of a block that have not exited.
#[derive(Debug, Clone, Default)]
pub(crate) struct Live {
    pub(crate) threads: u32,
    /// For each warp, its lanes that have not exited.
    lanes: SmallVec<[u32; 8]>,
    /// The block's thread count at its start, rounded up to whole warps.
    pub(crate) whole: u32,
}

impl Live {
    pub(crate) fn restart(&mut self, threads: u32) {
        self.threads = threads;
        let warp = LANES as u32;
        self.whole = threads.next_multiple_of(warp);
        self.lanes.clear();
        self.lanes.resize((threads / warp) as usize, FULL);
        if !threads.is_multiple_of(warp) {
            self.lanes.push((1 << (threads % warp)) - 1);
        }
    }

    pub(crate) fn exit(&mut self, warp: u32, lanes: u32) {
        self.threads -= lanes.count_ones();
        if let Some(live) = self.lanes.get_mut(warp as usize) {
            *live &= !lanes;
        }
    }

    fn of(&self, warp: u32) -> u32 {
        self.lanes.get(warp as usize).copied().unwrap_or(0)
    }
}

/// One barrier since its last completion.
#[derive(Debug, Clone, Default)]
pub(crate) struct BarrierState {
    /// Number of arrivals, counted by thread.
    arrived: u32,
    /// Number of repeated arrivals: those of threads that had already arrived.
    again: u32,
    /// Operands of the first arrival. `None` if no thread has arrived.
    purpose: Option<Purpose>,
    /// For barriers with a thread count: each warp that has arrived, with its arrived lanes.
    warps: SmallVec<[(u32, u32); 4]>,
    /// For `bar.red`: the number of true predicates.
    holding: u32,
}

impl BarrierState {
    /// Returns the operands with which the arrived threads came.
    pub(crate) fn purpose(&self) -> Option<Purpose> {
        self.purpose
    }

    /// Records the arrival of `lanes` of a warp.
    pub(crate) fn arrive(&mut self, warp: u32, lanes: u32, purpose: Purpose, holding: u32) {
        self.arrived = self.arrived.saturating_add(lanes.count_ones());
        self.holding = self.holding.saturating_add(holding);
        let earlier = self.purpose.get_or_insert(purpose);
        if purpose.threads.is_none() {
            earlier.threads = None;
            return;
        }
        let index = self.warps.iter().position(|(other, _)| *other == warp).unwrap_or_else(|| {
            self.warps.push((warp, 0));
            self.warps.len() - 1
        });
        let own = &mut self.warps[index].1;
        // A thread can arrive several times with `bar.arrive`.
        self.again = self.again.saturating_add((*own & lanes).count_ones());
        *own |= lanes;
    }

    /// Returns whether all expected threads have arrived. A thread count is in whole warps: of each warp that has
    /// arrived, lanes that do not exist or have exited count as well, even if they exit later.
    pub(crate) fn is_complete(&self, live: &Live) -> bool {
        let Some(purpose) = self.purpose else { return false };
        let Some(wanted) = purpose.threads else { return self.arrived >= live.threads };
        let of = |&(warp, lanes): &(u32, u32)| (lanes | !live.of(warp)).count_ones();
        self.again.saturating_add(self.warps.iter().map(of).sum()) >= wanted
    }

    /// Resets the barrier and returns the outcome of the completed phase.
    pub(crate) fn take(&mut self) -> Outcome {
        let done = std::mem::take(self);
        Outcome { holding: done.holding, arrived: done.arrived }
    }
}

/// Data of a completed barrier from which `bar.red` results are computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    holding: u32,
    arrived: u32,
}

impl Outcome {
    /// Returns the result of the reduction: a count for `popc`, otherwise 0 or 1.
    pub(crate) fn value(&self, how: Reduce) -> u32 {
        match how {
            Reduce::Popc => self.holding,
            Reduce::And => u32::from(self.holding == self.arrived),
            Reduce::Or => u32::from(self.holding != 0),
        }
    }
}
