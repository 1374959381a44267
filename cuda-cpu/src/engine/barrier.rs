//! The sixteen named barriers of a block: counting, not scheduling.

use smallvec::SmallVec;

use super::code::Reduce;
use super::ctx::{FULL, LANES};

/// How many there are.
pub(crate) const BARRIERS: usize = 16;

/// What threads come to a barrier for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Purpose {
    /// The thread count given; none: all threads of the block that have not exited.
    pub(crate) threads: Option<u32>,
    /// `bar.red`: how predicates are combined.
    pub(crate) reduces: Option<Reduce>,
}

/// The threads of a block that have not exited.
#[derive(Debug, Clone, Default)]
pub(crate) struct Live {
    pub(crate) threads: u32,
    /// By warp: its lanes.
    lanes: SmallVec<[u32; 8]>,
    /// Threads of the block when it began, in whole warps.
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

/// One barrier between two completions.
#[derive(Debug, Clone, Default)]
pub(crate) struct BarrierState {
    /// Arrivals of threads.
    arrived: u32,
    /// Of those, the second and further ones of a thread.
    again: u32,
    /// Why; none: nobody is here.
    purpose: Option<Purpose>,
    /// Where a thread count is given: warps, and which lanes of them have arrived.
    warps: SmallVec<[(u32, u32); 4]>,
    /// `bar.red`: how many predicates were true.
    holding: u32,
}

impl BarrierState {
    /// What those who have arrived came for.
    pub(crate) fn purpose(&self) -> Option<Purpose> {
        self.purpose
    }

    /// These lanes of a warp arrive.
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
        // A thread may say that it is here again and again.
        self.again = self.again.saturating_add((*own & lanes).count_ones());
        *own |= lanes;
    }

    /// Everybody is here. A thread count is of whole warps: of each that has arrived, the lanes that do not exist or have
    /// exited count too, also if they have done so later.
    pub(crate) fn is_complete(&self, live: &Live) -> bool {
        let Some(purpose) = self.purpose else { return false };
        let Some(wanted) = purpose.threads else { return self.arrived >= live.threads };
        let of = |&(warp, lanes): &(u32, u32)| (lanes | !live.of(warp)).count_ones();
        self.again.saturating_add(self.warps.iter().map(of).sum()) >= wanted
    }

    /// Begins anew; gives what came of it.
    pub(crate) fn take(&mut self) -> Outcome {
        let done = std::mem::take(self);
        Outcome { holding: done.holding, arrived: done.arrived }
    }
}

/// What a completed `bar.red` knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    holding: u32,
    arrived: u32,
}

impl Outcome {
    /// The reduction's result: a count, or 0 or 1.
    pub(crate) fn value(&self, how: Reduce) -> u32 {
        match how {
            Reduce::Popc => self.holding,
            Reduce::And => u32::from(self.holding == self.arrived),
            Reduce::Or => u32::from(self.holding != 0),
        }
    }
}
