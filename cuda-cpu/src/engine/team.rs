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
    /// For a block that begins; `live` are the lanes of each warp. Every block begins here, and most use nothing
    /// of it: there is no work in it beyond that.
    pub(crate) fn restart(&mut self, live: impl ExactSizeIterator<Item = u32>) {
        self.copies.resize_with(live.len(), Copies::default);
        self.bulks.restart();
        self.cluster.restart(live);
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
    /// By warp: the lanes that have not exited.
    live: Vec<u32>,
    /// By warp, as far as one has arrived: the lanes that have.
    arrived: Vec<Arrived>,
}

#[derive(Debug, Default, Clone)]
struct Arrived {
    lanes: u32,
    /// By lane: the phase in which it arrived.
    phases: [u64; LANES],
    /// Those that have arrived and not waited.
    owing: u32,
}

impl ClusterBarrier {
    fn restart(&mut self, live: impl Iterator<Item = u32>) {
        self.phase = 0;
        self.live.clear();
        self.live.extend(live);
        self.arrived.clear();
    }

    /// What the scheduler knows of a warp.
    pub(crate) fn set_live(&mut self, warp: u32, live: u32) {
        if let Some(known) = self.live.get_mut(warp as usize) {
            *known = live;
        }
    }

    /// False if it has arrived before, and not waited.
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

    /// Whether the thread has arrived, and not waited.
    pub(crate) fn owes(&self, warp: u32, lane: usize) -> bool {
        self.arrived.get(warp as usize).is_some_and(|own| own.owing >> lane & 1 != 0)
    }

    /// All threads that have not exited have arrived since this one did.
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
