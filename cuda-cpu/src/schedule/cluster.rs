//! A cluster: several blocks that one worker runs in turns. They share a barrier and access each other's shared memory.
//!
//! The block with rank 0 holds the cluster, and stands for it in the queue of its worker. The memory of a block lives
//! as long as the cluster, and an access to a block that has ended is a fault.

use smallvec::SmallVec;

use super::block::{Block, Turn};
use super::runner::Runner;
use crate::machine::ctx::{BlockFault, Segment};
use crate::machine::place::Place;
use crate::machine::team::ClusterBarrier;

/// Number of consecutive rounds after which blocks that all wait are a deadlock. In the first round, a block may still
/// act after another one has found that it waits.
const IDLE_ROUNDS: u32 = 2;

/// The blocks of a cluster, except for the one with rank 0.
#[allow(clippy::vec_box)] // Blocks are passed around in boxes.
pub(crate) struct Cluster {
    others: Vec<Box<Block>>,
    barrier: ClusterBarrier,
    /// The ranks of the blocks that have ended, one bit each.
    ended: u32,
    /// Number of consecutive rounds in which all blocks waited.
    idle: u32,
}

impl Cluster {
    /// Creates a cluster of the block that will hold it and these others.
    #[allow(clippy::vec_box)]
    pub(crate) fn new(others: Vec<Box<Block>>) -> Self {
        Self { others, barrier: ClusterBarrier::default(), ended: 0, idle: 0 }
    }

    /// Returns the number of bytes that the other blocks take.
    pub(crate) fn taken(&self) -> u64 {
        self.others.iter().map(|block| block.taken()).sum()
    }

    /// Starts the other blocks. `place` is that of `first`, which was started.
    pub(crate) fn start(&mut self, first: &mut Block, runner: &mut Runner<'_>, place: Place) {
        for (other, rank) in self.others.iter_mut().zip(1..) {
            other.start_alone(runner, place.of_rank(rank));
        }
        let others = self.others.iter();
        let blocks = std::iter::once(&*first).chain(others.map(|block| &**block));
        let live: Vec<u32> =
            blocks.flat_map(|block| block.warps.iter().map(|warp| warp.live)).collect();
        self.barrier.restart(live.into_iter());
        (self.ended, self.idle) = (0, 0);
    }

    /// Gives every block that has not ended a turn.
    pub(crate) fn run(
        &mut self,
        first: &mut Block,
        runner: &mut Runner<'_>,
    ) -> Result<Turn, BlockFault> {
        let (mut total, mut all_stalled, warps) = (0, true, first.warps.len() as u32);
        for rank in 0..=self.others.len() {
            if self.ended >> rank & 1 != 0 {
                continue;
            }
            runner.ctx.spaces.cluster = self.memory(first);
            let block = match rank.checked_sub(1) {
                None => &mut *first,
                Some(other) => &mut *self.others[other],
            };
            block.swap_cluster_barrier(&mut self.barrier, rank as u32 * warps);
            let turn = block.run_alone(runner);
            block.swap_cluster_barrier(&mut self.barrier, 0);
            runner.ctx.spaces.cluster.clear();
            match turn? {
                Turn::Finished => {
                    self.ended |= 1 << rank;
                    all_stalled = false;
                }
                Turn::Yielded(used) => {
                    total += used;
                    all_stalled &= block.is_stalled();
                }
            }
        }
        if self.ended.count_ones() as usize == self.others.len() + 1 {
            return Ok(Turn::Finished);
        }
        self.idle = if all_stalled { self.idle + 1 } else { 0 };
        if self.idle < IDLE_ROUNDS {
            return Ok(Turn::Yielded(total));
        }
        let block = match self.ended.trailing_ones().checked_sub(1) {
            None => first,
            Some(other) => &mut *self.others[other as usize],
        };
        runner.ctx.place = block.place(runner.ctx.place);
        Err(block.deadlock(runner))
    }

    /// The shared memory of the blocks in the order of their ranks. Pointers to it are made again for each turn,
    /// because a block borrows its own memory when its turn begins.
    fn memory(&mut self, first: &mut Block) -> SmallVec<[Segment; 1]> {
        let others = self.others.iter_mut().map(|block| block.shared_segment());
        let all = std::iter::once(first.shared_segment()).chain(others).enumerate();
        let ended = self.ended;
        all.map(|(rank, segment)| if ended >> rank & 1 != 0 { Segment::EMPTY } else { segment })
            .collect()
    }
}
