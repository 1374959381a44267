//! State that the threads of a block share besides memory: outstanding copies, the cluster barrier and progress
//! counters.
//!
//! The block owns it and lends it to the context while the block runs.

use super::async_copies::{Bulks, Copies};
use super::budget::Budget;
use crate::lanes::LANES;

/// Shared state of a block's threads.
#[derive(Debug, Default)]
pub(crate) struct Team {
    /// Index of the running warp.
    pub(crate) warp: u32,
    /// Number of warps in the blocks of the cluster that have lower ranks.
    pub(crate) warps_before: u32,
    /// For each warp, the outstanding copies of its threads.
    pub(crate) copies: Vec<Copies>,
    pub(crate) bulks: Bulks,
    pub(crate) cluster: ClusterBarrier,
    /// Counts events that may let a waiting thread continue.
    pub(crate) moved: u64,
    /// Counts reads of state that other blocks may change.
    pub(crate) looks: u64,
    /// Whether waits that may end without success do so now, because no thread of the block can continue.
    pub(crate) expired: bool,
}

impl Team {
    /// Resets the state for a new block. `live` contains the lanes of each warp. Every block calls this and most do not
    /// use the state, so it does as little as possible.
    pub(crate) fn restart(&mut self, live: impl ExactSizeIterator<Item = u32>) {
        self.copies.resize_with(live.len(), Copies::default);
        self.bulks.restart();
        self.cluster.restart(live);
        self.warps_before = 0;
        self.expired = false;
    }

    /// Discards outstanding operations at the end of the block.
    pub(crate) fn forget(&mut self, budget: &Budget) {
        self.copies.iter_mut().for_each(|copies| copies.forget(budget));
        self.bulks.forget(budget);
    }

    /// Returns the number of the running warp in its cluster.
    pub(crate) fn warp_in_cluster(&self) -> u32 {
        self.warps_before + self.warp
    }

    /// Returns the linear number of a thread in the block.
    pub(crate) fn thread(&self, lane: usize) -> usize {
        self.warp as usize * LANES + lane
    }

    /// Returns the copies of the running warp.
    pub(crate) fn own_copies(&mut self) -> Option<&mut Copies> {
        self.copies.get_mut(self.warp as usize)
    }
}

/// `barrier.cluster`. The blocks of a cluster share one.
#[derive(Debug, Default)]
pub(crate) struct ClusterBarrier {
    /// Number of completions.
    phase: u64,
    /// For each warp, the lanes that have not exited.
    live: Vec<u32>,
    /// For each warp, its arrivals. Empty until a thread arrives.
    arrived: Vec<Arrived>,
}

#[derive(Debug, Default, Clone)]
struct Arrived {
    lanes: u32,
    /// For each lane, the phase in which it arrived.
    phases: [u64; LANES],
    /// The lanes that have arrived and not waited since.
    owing: u32,
}

impl ClusterBarrier {
    pub(crate) fn restart(&mut self, live: impl Iterator<Item = u32>) {
        self.phase = 0;
        self.live.clear();
        self.live.extend(live);
        self.arrived.clear();
    }

    /// Updates the lanes of a warp that have not exited.
    pub(crate) fn set_live(&mut self, warp: u32, live: u32) {
        if let Some(known) = self.live.get_mut(warp as usize) {
            *known = live;
        }
    }

    /// Records a thread's arrival. Returns false if it had already arrived and not waited since.
    #[must_use]
    pub(crate) fn arrive(&mut self, warp: u32, lane: usize) -> bool {
        if self.arrived.is_empty() {
            self.arrived.resize(self.live.len(), Arrived::default());
        }
        let Some(arrived) = self.arrived.get_mut(warp as usize) else { return true };
        arrived.lanes |= 1 << lane;
        arrived.phases[lane] = self.phase;
        let first = arrived.owing >> lane & 1 == 0;
        arrived.owing |= 1 << lane;
        first
    }

    /// Returns whether the thread has arrived and not waited since.
    pub(crate) fn owes(&self, warp: u32, lane: usize) -> bool {
        self.arrived.get(warp as usize).is_some_and(|own| own.owing >> lane & 1 != 0)
    }

    /// Returns whether all threads that have not exited have arrived since this one did.
    pub(crate) fn is_complete(&mut self, warp: u32, lane: usize) -> bool {
        if self.live.iter().zip(&self.arrived).all(|(live, arrived)| live & !arrived.lanes == 0) {
            self.phase += 1;
            self.arrived.iter_mut().for_each(|arrived| arrived.lanes = 0);
        }
        let Some(own) = self.arrived.get_mut(warp as usize) else { return false };
        let complete = own.phases[lane] < self.phase;
        own.owing &= !(u32::from(complete) << lane);
        complete
    }
}
