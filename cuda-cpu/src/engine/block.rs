//! A block: its warps, its shared memory and its barriers.

use super::address::Segment;
use super::barrier::{BARRIERS, BarrierState};
use super::buffer::Buffer;
use super::bulk::Bulk;
use super::code::{Barrier, BarrierKind, Code, Control, Reduce};
use super::ctx::{Ctx, FULL, LANES, lanes_of};
use super::exec::transfer::finish_groups;
use super::fault::FaultKind;
use super::op::Slot;
use super::presets::{self, Place};
use super::runner::{Faulted, Runner, SLICE, Stop};
use super::stall::Stall;
use super::team::Team;
use super::waiting::everybody;
use super::warp::{Fragment, Wait, Warp};

/// What shared memory holds when a block begins: as new device memory, something that shows.
const FRESH: u8 = 0xFF;

/// Rounds of time slices before other blocks of the same worker get a turn.
const ROUNDS: u32 = 4;

/// Fuel of each warp before that: also blocks whose warps wait at barriers all the time give others a turn.
const TURN: u64 = ROUNDS as u64 * SLICE as u64;

/// Fuel that it takes to run a warp until it waits, beside that of its loops.
const PASS: u64 = 16;

/// What the warps of a block share.
pub(crate) struct BlockState {
    pub(crate) live_threads: u32,
    barriers: [BarrierState; BARRIERS],
    /// The barriers at which somebody has arrived.
    begun: u32,
}

/// See the module.
pub(crate) struct Block {
    pub(crate) at: [u32; 3],
    pub(crate) warps: Vec<Warp>,
    shared: Buffer,
    shared_size: u64,
    pub(crate) state: BlockState,
    team: Box<Team>,
    stall: Stall,
    function: u32,
    filled: bool,
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
    /// `None` when the host has no room.
    pub(crate) fn new(code: &Code, function: u32, threads: u32, shared: u32) -> Option<Self> {
        let warps = threads.div_ceil(LANES as u32);
        Some(Self {
            at: [0; 3],
            warps: (0..warps).map(|i| Warp::new(i, code, function)).collect::<Option<_>>()?,
            shared: Buffer::new(shared as usize)?,
            shared_size: u64::from(shared),
            state: BlockState::new(threads),
            team: Box::default(),
            stall: Stall::default(),
            function,
            filled: false,
        })
    }

    /// The bytes that a new block takes.
    pub(crate) fn needed(code: &Code, function: u32, threads: u32, shared: u32) -> u64 {
        let warps = u64::from(threads.div_ceil(LANES as u32));
        warps * Warp::needed(code, function) + Buffer::taken(shared.into())
    }

    /// The bytes that it takes.
    pub(crate) fn taken(&self) -> u64 {
        self.warps.iter().map(Warp::taken).sum::<u64>() + self.shared.len() as u64
    }

    /// Begins the block at `place.at`.
    pub(crate) fn start(&mut self, runner: &mut Runner<'_>, place: Place) {
        self.at = place.at;
        runner.ctx.place = place;
        self.shared.bytes_mut().fill(FRESH);
        let threads = place.threads();
        self.state = BlockState::new(threads);
        let function = &runner.code.functions[self.function as usize];
        for warp in &mut self.warps {
            let left = threads - warp.index * LANES as u32;
            let lanes = if left >= LANES as u32 { FULL } else { (1 << left) - 1 };
            let entry = function.entry.unwrap_or(0);
            warp.restart(lanes, self.function, entry, function.frame_bytes);
            runner.enter(warp, &Fragment { pc: 0, mask: FULL, call: 0 });
            runner.ctx.spaces.local_base = 0;
            let presets = if self.filled { &function.block_presets } else { &function.presets };
            presets::fill(&mut runner.ctx, presets, warp.index);
        }
        self.filled = true;
        self.team.restart(self.warps.iter().map(|warp| warp.live), runner.ctx.budget);
        self.stall = Stall::default();
    }

    /// Runs until all threads have exited or others should have a turn.
    pub(crate) fn run(&mut self, runner: &mut Runner<'_>) -> Result<Turn, BlockFault> {
        std::mem::swap(&mut self.team, &mut runner.ctx.team);
        let turn = self.turn(runner);
        std::mem::swap(&mut self.team, &mut runner.ctx.team);
        turn
    }

    fn turn(&mut self, runner: &mut Runner<'_>) -> Result<Turn, BlockFault> {
        runner.ctx.place.at = self.at;
        let start = self.shared.bytes_mut().as_mut_ptr();
        runner.ctx.spaces.shared = Segment { start, size: self.shared_size };
        let (mut rounds, mut used) = (0, 0);
        loop {
            let (mut yielded, mut moved, mut ran) = (false, false, 0);
            for i in 0..self.warps.len() {
                let warp = &mut self.warps[i];
                if warp.live == 0 || (warp.ready.is_empty() && warp.parked.is_empty()) {
                    continue;
                }
                moved |= !warp.ready.is_empty();
                runner.ctx.team.warp = i as u32;
                let stop = runner
                    .run(warp, &mut self.state)
                    .map_err(|Faulted { pc }| BlockFault { pc, warp: i as u32 })?;
                runner.ctx.team.cluster.set_live(i as u32, warp.live);
                yielded |= stop == Stop::Yielded;
                ran += 1;
                used += runner.used() + PASS;
                // Also when it goes on: some of its lanes may wait for others of its lanes.
                self.release(runner);
            }
            if self.state.live_threads == 0 {
                let faulty = |bulk: Bulk| BlockFault { pc: bulk.pc, warp: bulk.warp };
                return finish_groups(&mut runner.ctx).map(|()| Turn::Finished).map_err(faulty);
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

    /// Lets those go on whose barrier is complete.
    fn release(&mut self, runner: &mut Runner<'_>) {
        for id in lanes_of(self.state.begun) {
            let Some(outcome) = self.state.barriers[id].complete(self.state.live_threads) else {
                continue;
            };
            self.state.begun &= !(1 << id);
            for warp in &mut self.warps {
                let wait = Wait::Barrier(id as u32);
                let waiting: Vec<Fragment> =
                    warp.parked.iter().filter(|(_, w)| *w == wait).map(|&(f, _)| f).collect();
                warp.parked.retain(|(_, w)| *w != wait);
                for fragment in waiting {
                    runner.enter(warp, &fragment);
                    let op = &runner.code.ops[fragment.pc as usize];
                    if let Control::Barrier(Barrier {
                        kind: BarrierKind::Reduce { how, output, .. },
                        ..
                    }) = runner.code.controls[op.extra as usize]
                    {
                        let value = outcome.value(how);
                        deliver(&mut runner.ctx, how, output, value);
                    }
                    warp.ready.push(Fragment { pc: fragment.pc + 1, ..fragment });
                }
            }
        }
    }

    /// Nobody can go on: says who waits where.
    fn deadlock(&mut self, runner: &mut Runner<'_>) -> BlockFault {
        let (waiting, first) = everybody(runner, &mut self.warps);
        let (warp, fragment) = first.unwrap_or((0, Fragment { pc: 0, mask: 1, call: 0 }));
        let lane = fragment.mask.trailing_zeros() as usize & 31;
        runner.ctx.fail(lane, FaultKind::Deadlock { waiting });
        BlockFault { pc: fragment.pc, warp }
    }
}

fn deliver(ctx: &mut Ctx<'_>, how: Reduce, output: Slot, value: u32) {
    let mask = ctx.mask;
    match how {
        Reduce::Popc => ctx.write(output, mask, &[value; LANES]),
        Reduce::And | Reduce::Or => ctx.set_pred(output, mask, if value != 0 { mask } else { 0 }),
    }
}

impl BlockState {
    fn new(threads: u32) -> Self {
        Self { live_threads: threads, barriers: [BarrierState::default(); BARRIERS], begun: 0 }
    }

    /// Lanes arrive at a barrier: counted, and parked unless they only say so.
    pub(crate) fn arrive(
        &mut self,
        ctx: &mut Ctx<'_>,
        warp: &mut Warp,
        at: Fragment,
        barrier: &Barrier,
    ) -> Result<(), ()> {
        let lane = at.mask.trailing_zeros() as usize & 31;
        let id = ctx.lane::<u32>(barrier.id, lane);
        let given = (barrier.threads != Slot::NONE).then(|| ctx.lane::<u32>(barrier.threads, lane));
        let bad = |n: u32| n == 0 || !n.is_multiple_of(LANES as u32);
        if id as usize >= BARRIERS || given.is_some_and(bad) {
            ctx.fail(lane, FaultKind::BadBarrier { barrier: id, threads: given });
            return Err(());
        }
        let holding = match barrier.kind {
            BarrierKind::Reduce { input, negated, .. } => {
                let pred = ctx.pred(input);
                ((if negated { !pred } else { pred }) & at.mask).count_ones()
            }
            _ => 0,
        };
        let (threads, absent) = (at.mask.count_ones(), 32 - warp.live.count_ones());
        self.begun |= 1 << id;
        let state = &mut self.barriers[id as usize];
        state.arrive(warp.index, threads, absent, given.unwrap_or(0), holding);
        if barrier.kind == BarrierKind::Arrive {
            warp.ready.push(Fragment { pc: at.pc + 1, ..at });
        } else {
            warp.parked.push((at, Wait::Barrier(id)));
        }
        Ok(())
    }
}
