//! A block: its warps, its shared memory and its barriers.

use super::address::Segment;
use super::barrier::{BARRIERS, BarrierState};
use super::buffer::Buffer;
use super::bulk::Bulk;
use super::code::{Barrier, BarrierKind, Code, Control, Preset, Reduce};
use super::ctx::{Ctx, FULL, LANES, lanes_of};
use super::divergence::{apart, diverged, divergence, together};
use super::exec::transfer::finish_groups;
use super::fault::FaultKind;
use super::observe::{Checks, Shadow, Size};
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
        let BlockSize { function, threads, shared, checks } = size;
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
            state: BlockState::new(threads),
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
        self.state = BlockState::new(threads);
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

    /// Lets those go on whose barrier is complete.
    fn release(&mut self, runner: &mut Runner<'_>) {
        for id in lanes_of(self.state.begun) {
            let Some(outcome) = self.state.barriers[id].complete(self.state.live_threads) else {
                continue;
            };
            self.state.begun &= !(1 << id);
            self.tell_release(runner, id as u32);
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

    /// Tells who watches that a barrier lets go of those who wait there.
    fn tell_release(&self, runner: &mut Runner<'_>, id: u32) {
        let live = self.state.live_threads;
        if let Some(shadow) = runner.shadow() {
            let here = |warp: &Warp| warp.waiting_at(|wait| *wait == Wait::Barrier(id));
            let waiting = self.warps.iter().map(|warp| (warp.index, here(warp)));
            let everyone =
                waiting.clone().map(|(_, lanes)| lanes.count_ones()).sum::<u32>() == live;
            shadow.release(id, everyone, waiting);
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

fn first_lane(lanes: u32) -> usize {
    lanes.trailing_zeros() as usize & 31
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

    /// Lanes arrive at a barrier, or at several, if each says for itself at which.
    pub(crate) fn arrive(
        &mut self,
        ctx: &mut Ctx<'_>,
        warp: &mut Warp,
        at: Fragment,
        barrier: &Barrier,
    ) -> Result<(), ()> {
        let mut left = at.mask;
        while left != 0 {
            let lanes = together(ctx, barrier, left);
            let wrong = match left & !lanes {
                others if others != 0 && barrier.aligned => {
                    let others = Fragment { mask: others, ..at };
                    Some(apart(ctx, warp, Fragment { mask: lanes, ..at }, others, barrier))
                }
                _ => diverged(ctx, warp, at, barrier),
            };
            if let Some(kind) = wrong {
                ctx.fail(first_lane(lanes), kind);
                return Err(());
            }
            self.arrive_at_one(ctx, warp, Fragment { mask: lanes, ..at }, barrier)?;
            left &= !lanes;
        }
        Ok(())
    }

    /// Lanes arrive at a barrier: counted, and parked unless they only say so.
    fn arrive_at_one(
        &mut self,
        ctx: &mut Ctx<'_>,
        warp: &mut Warp,
        at: Fragment,
        barrier: &Barrier,
    ) -> Result<(), ()> {
        let lane = first_lane(at.mask);
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
