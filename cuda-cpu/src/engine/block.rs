//! A block: its warps, its shared memory and its barriers.

use super::address::Segment;
use super::barriers::{Barriers, first_lane};
use super::buffer::Buffer;
use super::bulk::Bulk;
use super::code::{Code, Preset};
use super::ctx::{FULL, LANES};
use super::divergence::divergence;
use super::exec::transfer::finish_groups;
use super::fault::FaultKind;
use super::observe::{Checks, Shadow, Size};
use super::presets::{self, Place};
use super::runner::{Faulted, Runner, SLICE, Stop};
use super::stall::Stall;
use super::team::Team;
use super::waiting::everybody;
use super::warp::{Fragment, Warp};

/// What shared memory holds when a block begins: as new device memory, something that shows.
const FRESH: u8 = 0xFF;

/// Rounds of time slices before other blocks of the same worker get a turn.
const ROUNDS: u32 = 4;

/// Fuel of each warp before that: also blocks whose warps wait at barriers all the time give others a turn.
const TURN: u64 = ROUNDS as u64 * SLICE as u64;

/// Fuel that it takes to run a warp until it waits, beside that of its loops.
const PASS: u64 = 16;

/// See the module.
pub(crate) struct Block {
    pub(crate) at: [u32; 3],
    pub(crate) warps: Vec<Warp>,
    shared: Buffer,
    shared_size: u64,
    barriers: Barriers,
    /// What is remembered of it, where something is checked.
    shadow: Option<Box<Shadow>>,
    team: Box<Team>,
    stall: Stall,
    function: u32,
    /// What its presets were filled in for.
    filled: Option<Place>,
}

/// What a block is made of.
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

    /// The bytes that a new block takes.
    pub(crate) fn needed(&self, code: &Code) -> u64 {
        let warps = u64::from(self.warps()) * Warp::needed(code, self.function);
        let shadow = Shadow::needed(self.checks, self.watched(code));
        warps + Buffer::taken(self.shared.into()) + shadow
    }
}

/// How a turn of a block ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Finished,
    /// With the fuel that its warps have used.
    Yielded(u64),
}

/// A fault in one of the block's warps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockFault {
    pub(crate) pc: u32,
    pub(crate) warp: u32,
}

impl Block {
    /// `None` when the host has no room. Boxed, because blocks are handed around.
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
            filled: None,
        }))
    }

    /// The bytes that it takes.
    pub(crate) fn taken(&self) -> u64 {
        let shadow = self.shadow.as_ref().map_or(0, |shadow| shadow.taken());
        self.warps.iter().map(Warp::taken).sum::<u64>() + self.shared.len() as u64 + shadow
    }

    /// Begins the block at `place.at`.
    pub(crate) fn start(&mut self, runner: &mut Runner<'_>, place: Place) {
        self.at = place.at;
        runner.ctx.place = place;
        self.shared.bytes_mut().fill(FRESH);
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

    /// Nothing is checked in it.
    pub(crate) fn is_unwatched(&self) -> bool {
        self.shadow.is_none()
    }

    /// Whether it can be begun again in a launch whose blocks are like that.
    pub(crate) fn fits(&self, size: BlockSize) -> bool {
        let like = (size.function, size.warps() as usize, u64::from(size.shared));
        let unwatched = self.is_unwatched() && !size.checks.any();
        unwatched && (self.function, self.warps.len(), self.shared_size) == like
    }

    /// Runs until all threads have exited or others should have a turn.
    pub(crate) fn run(&mut self, runner: &mut Runner<'_>) -> Result<Turn, BlockFault> {
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
        let start = self.shared.bytes_mut().as_mut_ptr();
        runner.ctx.spaces.shared = Segment { start, size: self.shared_size };
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
                runner.ctx.team.cluster.set_live(i as u32, warp.live);
                yielded |= stop == Stop::Yielded;
                ran += 1;
                used += runner.used() + PASS;
                // Also when it goes on: some of its lanes may wait for others of its lanes.
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
            if hangs || !moved && !runnable {
                return Err(self.deadlock(runner));
            }
            rounds += u32::from(yielded);
            if rounds >= ROUNDS || used >= TURN * ran {
                return Ok(Turn::Yielded(used));
            }
        }
    }

    /// Nobody can go on: says who waits where.
    fn deadlock(&mut self, runner: &mut Runner<'_>) -> BlockFault {
        let code = runner.code;
        if let Some((warp, fragment, kind)) = self.warps.iter().find_map(|w| divergence(code, w)) {
            runner.ctx.fail(first_lane(fragment.mask), kind);
            return BlockFault { pc: fragment.pc, warp };
        }
        let (waiting, first) = everybody(runner, &mut self.warps);
        let (warp, fragment) = first.unwrap_or((0, Fragment { pc: 0, mask: 1, call: 0 }));
        runner.ctx.fail(first_lane(fragment.mask), FaultKind::Deadlock { waiting });
        BlockFault { pc: fragment.pc, warp }
    }

    /// Where some thread is that has not exited: of no instruction in particular.
    pub(crate) fn somewhere(&self) -> Option<(BlockFault, usize)> {
        self.warps.iter().find_map(|warp| {
            let parked = warp.parked.iter().map(|(fragment, _)| fragment);
            let fragment = warp.ready.iter().chain(parked).next()?;
            let at = BlockFault { pc: fragment.pc, warp: warp.index };
            Some((at, first_lane(fragment.mask)))
        })
    }
}
