//! What the threads of a block have in common beside memory: copies under way, the barrier of their cluster, and who
//! has got anywhere while others wait.
//!
//! It lies in the block and is lent to the context while the block runs.

use super::budget::Budget;
use super::bulk::Bulks;
use super::copies::Copies;
use super::ctx::LANES;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Team {
    /// The warp that runs.
    pub(crate) warp: u32,
    /// Copies that the threads of each warp have begun.
    pub(crate) copies: Vec<Copies>,
    pub(crate) bulks: Bulks,
    pub(crate) cluster: ClusterBarrier,
    /// Counts what may let a waiting thread go on.
    pub(crate) moved: u64,
    /// Counts looks at what others than this block may change.
    pub(crate) looks: u64,
    /// Waits that may end without success do: nobody of the block can go on.
    pub(crate) expired: bool,
}

impl Team {
    /// For a block that begins; `live` are the lanes of each warp.
    pub(crate) fn restart(&mut self, live: impl Iterator<Item = u32>) {
        let live: Vec<u32> = live.collect();
        self.copies.resize_with(live.len(), Copies::default);
        self.bulks.restart(live.len() * LANES);
        self.cluster = ClusterBarrier { live, ..ClusterBarrier::default() };
        self.cluster.arrived.resize(self.cluster.live.len(), 0);
        self.cluster.waits_for.resize(self.cluster.live.len() * LANES, 0);
        self.expired = false;
    }

    /// The block ends: nobody waits for what is left.
    pub(crate) fn forget(&mut self, budget: &Budget) {
        self.copies.iter_mut().for_each(|copies| copies.forget(budget));
        self.bulks.forget(budget);
    }

    /// A thread's number in the block.
    pub(crate) fn thread(&self, lane: usize) -> usize {
        self.warp as usize * LANES + lane
    }

    /// The running warp's copies.
    pub(crate) fn own_copies(&mut self) -> Option<&mut Copies> {
        self.copies.get_mut(self.warp as usize)
    }
}

/// `barrier.cluster` of a cluster of one block.
#[derive(Debug, Default)]
pub(crate) struct ClusterBarrier {
    /// How often it was complete.
    phase: u64,
    /// By warp: the lanes that have not exited, those that have arrived.
    live: Vec<u32>,
    arrived: Vec<u32>,
    /// By thread: the phase in which it arrived.
    waits_for: Vec<u64>,
}

impl ClusterBarrier {
    /// What the scheduler knows of a warp.
    pub(crate) fn set_live(&mut self, warp: u32, live: u32) {
        if let Some(known) = self.live.get_mut(warp as usize) {
            *known = live;
        }
    }

    pub(crate) fn arrive(&mut self, warp: u32, lane: usize) {
        let warp = warp as usize;
        if let (Some(arrived), Some(waits_for)) =
            (self.arrived.get_mut(warp), self.waits_for.get_mut(warp * LANES + lane))
        {
            *arrived |= 1 << lane;
            *waits_for = self.phase;
        }
    }

    /// All threads that have not exited have arrived since this one did.
    pub(crate) fn is_complete(&mut self, warp: u32, lane: usize) -> bool {
        if self.live.iter().zip(&self.arrived).all(|(live, arrived)| live & !arrived == 0) {
            self.phase += 1;
            self.arrived.fill(0);
        }
        self.waits_for.get(warp as usize * LANES + lane).is_some_and(|&own| own < self.phase)
    }
}
