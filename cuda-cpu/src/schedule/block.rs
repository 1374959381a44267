//! A block: its warps, its shared memory and its barriers.

use super::barriers::{Barriers, divergence, first_lane};
use super::buffer::Buffer;
use super::cluster::Cluster;
use super::runner::{Faulted, Runner, SLICE, Stop};
use super::stall::{Stall, waiting_threads};
use super::warp::{Fragment, Warp};
use crate::exec::sync::transfer::finish_groups;
use crate::fault::FaultKind;
use crate::isa::operand::Preset;
use crate::lanes::{FULL, LANES};
use crate::machine::async_copies::Bulk;
use crate::machine::code::Code;
use crate::machine::ctx::{BlockFault, Segment};
use crate::machine::place::Place;
use crate::machine::presets;
use crate::machine::team::{ClusterBarrier, Team};
use crate::observe::{Checks, Shadow, Size};

/// Fill byte of shared memory at the start of a block. As with new device memory, it makes reads of unwritten memory
/// visible.
const FILL: u8 = 0xFF;

/// Rounds of time slices before the worker switches to another block.
const ROUNDS: u32 = 4;

/// Fuel of each warp in a turn. It also limits blocks whose warps wait at barriers before their time slice ends.
const TURN: u64 = ROUNDS as u64 * SLICE as u64;

/// Fuel charged for running a warp until it stops, in addition to the fuel of its loops.
const PASS: u64 = 16;

/// A block: its warps, shared memory and barriers.
pub(crate) struct Block {
    pub(crate) at: [u32; 3],
    pub(crate) warps: Vec<Warp>,
    shared: Buffer,
    shared_size: u64,
    barriers: Barriers,
    /// Records of the checks, if any check is enabled.
    shadow: Option<Box<Shadow>>,
    team: Box<Team>,
    stall: Stall,
    function: u32,
    /// The other blocks of the cluster, in the block with rank 0.
    pub(crate) cluster: Option<Box<Cluster>>,
    /// Whether no thread can continue without another block of the cluster.
    is_stalled: bool,
    /// The place for which the presets were last filled in.
    filled: Option<Place>,
}

/// The parameters that determine the memory of a block.
#[derive(Clone, Copy)]
pub(crate) struct BlockSize {
    pub(crate) function: u32,
    pub(crate) threads: u32,
    /// Shared memory, in bytes.
    pub(crate) shared: u32,
    pub(crate) checks: Checks,
}

impl BlockSize {
    fn warps(&self) -> u32 {
        self.threads.div_ceil(LANES as u32)
    }

    fn watched(&self, code: &Code) -> Size {
        Size::new(code, self.function, self.threads, self.shared)
    }

    /// Returns the number of bytes that a new block takes.
    pub(crate) fn needed(&self, code: &Code) -> u64 {
        let warps = u64::from(self.warps()) * Warp::needed(code, self.function);
        let shadow = Shadow::needed(self.checks, self.watched(code));
        warps + Buffer::taken(self.shared.into()) + shadow
    }
}

/// The end of a block's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Finished,
    /// The block yielded. The value is the fuel that its warps used.
    Yielded(u64),
}

impl Block {
    /// Returns `None` if the host has no memory. Boxed, because blocks move between queues.
    pub(crate) fn new(code: &Code, size: BlockSize) -> Option<Box<Self>> {
        let BlockSize { function, shared, checks, .. } = size;
        let shadow = match checks.any() {
            true => Some(Box::new(Shadow::new(checks, size.watched(code))?)),
            false => None,
        };
        let warp = |i| Warp::new(i, code, function);
        Some(Box::new(Self {
            at: [0; 3],
            warps: (0..size.warps()).map(warp).collect::<Option<_>>()?,
            shared: Buffer::new(shared as usize)?,
            shared_size: u64::from(shared),
            barriers: Barriers::default(),
            shadow,
            team: Box::default(),
            stall: Stall::default(),
            function,
            cluster: None,
            is_stalled: false,
            filled: None,
        }))
    }

    /// Returns the number of bytes that the block takes.
    pub(crate) fn taken(&self) -> u64 {
        let shadow = self.shadow.as_ref().map_or(0, |shadow| shadow.taken());
        let cluster = self.cluster.as_ref().map_or(0, |cluster| cluster.taken());
        self.warps.iter().map(Warp::taken).sum::<u64>()
            + self.shared.len() as u64
            + shadow
            + cluster
    }

    /// Starts the block at `place.at`, and the other blocks of its cluster.
    pub(crate) fn start(&mut self, runner: &mut Runner<'_>, place: Place) {
        self.start_alone(runner, place);
        if let Some(mut cluster) = self.cluster.take() {
            cluster.start(self, runner, place);
            self.cluster = Some(cluster);
        }
    }

    pub(crate) fn start_alone(&mut self, runner: &mut Runner<'_>, place: Place) {
        self.at = place.at;
        runner.ctx.place = place;
        self.shared.bytes_mut().fill(FILL);
        self.shadow.iter_mut().for_each(|shadow| shadow.restart());
        let threads = place.threads();
        self.barriers.restart(threads);
        let function = &runner.code.functions[self.function as usize];
        let stale: &[&[Preset]] = match self.filled {
            Some(old) if old.is_same_launch(&place) => &[&function.block_presets],
            Some(old) if old.block == place.block => {
                &[&function.launch_presets, &function.block_presets]
            }
            _ => &[&function.presets],
        };
        for warp in &mut self.warps {
            let left = threads - warp.index * LANES as u32;
            let lanes = if left >= LANES as u32 { FULL } else { (1 << left) - 1 };
            let entry = function.entry.unwrap_or(0);
            warp.restart(lanes, self.function, entry, function.frame_bytes);
            runner.enter(warp, &Fragment { pc: 0, mask: FULL, call: 0 });
            runner.ctx.spaces.local_base = 0;
            for presets in stale {
                presets::fill(&mut runner.ctx, presets, warp.index);
            }
        }
        self.filled = Some(place);
        self.team.restart(self.warps.iter().map(|warp| warp.live));
        self.stall = Stall::default();
    }

    /// Returns whether no thread could continue without another block of the cluster, at the end of the last turn.
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Returns the block's place. `of_worker` supplies the fields that all blocks of the launch share.
    pub(crate) fn place(&self, of_worker: Place) -> Place {
        Place { at: self.at, ..of_worker }
    }

    /// Returns the block's shared memory.
    pub(crate) fn shared_segment(&mut self) -> Segment {
        Segment { start: self.shared.bytes_mut().as_mut_ptr(), size: self.shared_size }
    }

    /// Exchanges the block's cluster barrier with that of its cluster. `before` is the number of warps in blocks with
    /// lower ranks.
    pub(crate) fn swap_cluster_barrier(&mut self, barrier: &mut ClusterBarrier, before: u32) {
        std::mem::swap(&mut self.team.cluster, barrier);
        self.team.warps_before = before;
    }

    /// Returns whether no check is enabled for the block.
    pub(crate) fn is_unwatched(&self) -> bool {
        self.shadow.is_none()
    }

    /// Returns whether the block can be reused in a launch with blocks of this size.
    pub(crate) fn fits(&self, size: BlockSize) -> bool {
        let like = (size.function, size.warps() as usize, u64::from(size.shared));
        let unwatched = self.is_unwatched() && !size.checks.any();
        unwatched && (self.function, self.warps.len(), self.shared_size) == like
    }

    /// Runs the block and its cluster until all threads have exited, a thread faults, or the turn ends.
    pub(crate) fn run(&mut self, runner: &mut Runner<'_>) -> Result<Turn, BlockFault> {
        let Some(mut cluster) = self.cluster.take() else { return self.run_alone(runner) };
        let turn = cluster.run(self, runner);
        self.cluster = Some(cluster);
        turn
    }

    pub(crate) fn run_alone(&mut self, runner: &mut Runner<'_>) -> Result<Turn, BlockFault> {
        runner.swap_shadow(&mut self.shadow);
        std::mem::swap(&mut self.team, &mut runner.ctx.team);
        let turn = self.turn(runner);
        std::mem::swap(&mut self.team, &mut runner.ctx.team);
        runner.swap_shadow(&mut self.shadow);
        match (&mut self.shadow, turn) {
            (Some(shadow), Ok(Turn::Finished) | Err(_)) => {
                match shadow.verdict(runner.ctx.fault.as_ref()) {
                    Some((fault, at)) => {
                        runner.ctx.fault = Some(fault);
                        Err(at)
                    }
                    None => turn,
                }
            }
            _ => turn,
        }
    }

    fn turn(&mut self, runner: &mut Runner<'_>) -> Result<Turn, BlockFault> {
        runner.ctx.place.at = self.at;
        let own = runner.ctx.place.cluster_rank() as usize;
        let spaces = &mut runner.ctx.spaces;
        spaces.shared = match spaces.cluster.get(own) {
            // The cluster has made pointers to the memory of all its blocks.
            Some(shared) => *shared,
            None => self.shared_segment(),
        };
        let (mut rounds, mut used) = (0, 0);
        loop {
            let (mut yielded, mut moved, mut ran) = (false, false, 0);
            for i in 0..self.warps.len() {
                let i = runner.begin_slice(i, self.warps.len());
                let warp = &mut self.warps[i];
                if warp.live == 0 || (warp.ready.is_empty() && warp.parked.is_empty()) {
                    continue;
                }
                moved |= !warp.ready.is_empty();
                runner.ctx.team.warp = i as u32;
                let stop = runner
                    .run(warp, &mut self.barriers)
                    .map_err(|Faulted { pc }| BlockFault { pc, warp: i as u32 })?;
                let team = &mut runner.ctx.team;
                team.cluster.set_live(team.warps_before + i as u32, warp.live);
                yielded |= stop == Stop::Yielded;
                ran += 1;
                used += runner.used() + PASS;
                // Also when this warp continues, because its other lanes may wait at the barrier.
                self.barriers.release(&mut self.warps, runner);
            }
            if self.barriers.live.threads == 0 {
                let faulty = |bulk: Bulk| BlockFault { pc: bulk.pc, warp: bulk.warp };
                finish_groups(&mut runner.ctx).map_err(faulty)?;
                let budget = runner.ctx.budget;
                runner.ctx.team.forget(budget);
                return Ok(Turn::Finished);
            }
            let runnable = self.warps.iter().any(|w| !w.ready.is_empty());
            let hangs = self.stall.hangs(runner.code, &self.warps, &mut runner.ctx.team);
            if !moved && !runnable || hangs && runner.ctx.spaces.cluster.is_empty() {
                return Err(self.deadlock(runner));
            }
            self.is_stalled = hangs;
            if hangs {
                return Ok(Turn::Yielded(used));
            }
            rounds += u32::from(yielded);
            if rounds >= ROUNDS || used >= TURN * ran {
                return Ok(Turn::Yielded(used));
            }
        }
    }

    /// Creates the fault for a block in which no thread can continue.
    pub(crate) fn deadlock(&mut self, runner: &mut Runner<'_>) -> BlockFault {
        let code = runner.code;
        if let Some((warp, fragment, kind)) = self.warps.iter().find_map(|w| divergence(code, w)) {
            runner.ctx.fail(first_lane(fragment.mask), kind);
            return BlockFault { pc: fragment.pc, warp };
        }
        let (waiting, first) = waiting_threads(runner, &mut self.warps);
        let (warp, fragment) = first.unwrap_or((0, Fragment { pc: 0, mask: 1, call: 0 }));
        runner.ctx.fail(first_lane(fragment.mask), FaultKind::Deadlock { waiting });
        BlockFault { pc: fragment.pc, warp }
    }

    /// Returns the position of a thread that has not exited, for faults that no particular instruction caused.
    pub(crate) fn any_position(&self) -> Option<(BlockFault, usize)> {
        self.warps.iter().find_map(|warp| {
            let parked = warp.parked.iter().map(|(fragment, _)| fragment);
            let fragment = warp.ready.iter().chain(parked).next()?;
            let at = BlockFault { pc: fragment.pc, warp: warp.index };
            Some((at, first_lane(fragment.mask)))
        })
    }
}
