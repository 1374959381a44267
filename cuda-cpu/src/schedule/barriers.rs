//! The named barriers of a block: parks fragments that arrive, and releases them when the barrier completes.
//!
//! Detects divergence at barriers that all lanes of a warp must execute together. `bar.sync`, `bar.red` and
//! `barrier.*.aligned` are for whole warps. Lanes may arrive later if they arrive at the same instruction, and lanes
//! that have exited do not count. It is a fault if lanes of a warp wait at two different barrier instructions. It is
//! also a fault if no thread of the block can continue while some lanes of a warp wait at a barrier and others
//! elsewhere. Lanes that execute `bar.arrive` do not wait.

use smallvec::SmallVec;

use super::runner::Runner;
use super::warp::{Fragment, Wait, Warp};
use crate::fault::{FaultKind, Waiting, WaitsFor};
use crate::isa::operand::{Barrier, BarrierKind, Reduce, Slot};
use crate::isa::{BARRIERS, MAX_BLOCK_THREADS};
use crate::lanes::{FULL, LANES, lanes_of};
use crate::machine::code::{Code, Control};
use crate::machine::ctx::Ctx;

/// The barriers of one block.
#[derive(Default)]
pub(crate) struct Barriers {
    /// The threads that have not exited, for which barriers without a thread count wait.
    pub(crate) live: Live,
    states: [BarrierState; BARRIERS],
    /// Mask of the barriers with at least one arrival.
    begun: u32,
}

impl Barriers {
    /// Resets the barriers for a new block of `threads` threads.
    pub(crate) fn restart(&mut self, threads: u32) {
        self.live.restart(threads);
        for id in lanes_of(std::mem::take(&mut self.begun)) {
            self.states[id] = BarrierState::default();
        }
    }

    /// Records the arrival of lanes at the barrier that each lane names. Returns whether a barrier is complete. Its
    /// waiting fragments must then be released before another thread arrives at it.
    pub(crate) fn arrive(
        &mut self,
        ctx: &mut Ctx<'_>,
        warp: &mut Warp,
        at: Fragment,
        barrier: &Barrier,
    ) -> Result<bool, ()> {
        let (mut left, mut complete) = (at.mask, false);
        while left != 0 {
            let lanes = lanes_at_same_barrier(ctx, barrier, left);
            let wrong = match left & !lanes {
                others if others != 0 && barrier.aligned => {
                    let others = Fragment { mask: others, ..at };
                    Some(mixed_barriers(ctx, warp, Fragment { mask: lanes, ..at }, others, barrier))
                }
                _ => diverged(ctx, warp, at, barrier),
            };
            if let Some(kind) = wrong {
                ctx.fail(first_lane(lanes), kind);
                return Err(());
            }
            complete |= self.arrive_at_one(ctx, warp, Fragment { mask: lanes, ..at }, barrier)?;
            left &= !lanes;
        }
        Ok(complete)
    }

    /// Returns the fault if `purpose` conflicts with the operands of earlier arrivals at the barrier.
    fn conflict(&self, id: u32, purpose: Purpose) -> Option<FaultKind> {
        let others = self.states[id as usize].purpose()?;
        let count = |purpose: Purpose| purpose.threads.unwrap_or(self.live.whole);
        if count(purpose) != count(others) {
            let (threads, others) = (count(purpose), count(others));
            return Some(FaultKind::BarrierCount { barrier: id, threads, others });
        }
        (purpose.reduces != others.reduces).then_some(FaultKind::BarrierPurpose { barrier: id })
    }

    /// Records the arrival of lanes at one barrier, and parks them unless the instruction is `bar.arrive`. Returns
    /// whether the barrier is complete.
    fn arrive_at_one(
        &mut self,
        ctx: &mut Ctx<'_>,
        warp: &mut Warp,
        at: Fragment,
        barrier: &Barrier,
    ) -> Result<bool, ()> {
        let lane = first_lane(at.mask);
        let id = ctx.lane::<u32>(barrier.id, lane);
        let given = (barrier.threads != Slot::NONE).then(|| ctx.lane::<u32>(barrier.threads, lane));
        let bad = |n: u32| n == 0 || !n.is_multiple_of(LANES as u32);
        let (holding, reduces) = match barrier.kind {
            BarrierKind::Reduce { how, input, negated, .. } => {
                let pred = ctx.pred(input);
                (((if negated { !pred } else { pred }) & at.mask).count_ones(), Some(how))
            }
            _ => (0, None),
        };
        let purpose = Purpose { threads: given, reduces };
        let wrong = if id as usize >= BARRIERS {
            Some(FaultKind::BadBarrier { barrier: id, threads: None })
        } else if given.is_some_and(|n| bad(n) || n > MAX_BLOCK_THREADS) {
            Some(FaultKind::BadBarrier { barrier: id, threads: given })
        } else {
            self.conflict(id, purpose)
        };
        if let Some(kind) = wrong {
            ctx.fail(lane, kind);
            return Err(());
        }
        self.begun |= 1 << id;
        let state = &mut self.states[id as usize];
        state.arrive(warp.index, at.mask, purpose, holding);
        if barrier.kind == BarrierKind::Arrive {
            warp.ready.push(Fragment { pc: at.pc + 1, ..at });
        } else {
            warp.parked.push((at, Wait::Barrier(id)));
        }
        Ok(state.is_complete(&self.live))
    }

    /// Releases the fragments that wait at completed barriers.
    #[inline]
    pub(crate) fn release(&mut self, warps: &mut [Warp], runner: &mut Runner<'_>) {
        if self.begun != 0 {
            self.release_begun(warps, runner);
        }
    }

    fn release_begun(&mut self, warps: &mut [Warp], runner: &mut Runner<'_>) {
        for id in lanes_of(self.begun) {
            if !self.states[id].is_complete(&self.live) {
                continue;
            }
            let outcome = self.states[id].take();
            self.begun &= !(1 << id);
            let wait = Wait::Barrier(id as u32);
            self.report_release(warps, runner, id as u32);
            for warp in &mut *warps {
                let waiting: SmallVec<[Fragment; 4]> =
                    warp.parked.iter().filter(|(_, w)| *w == wait).map(|&(f, _)| f).collect();
                warp.parked.retain(|(_, w)| *w != wait);
                for fragment in waiting {
                    let op = &runner.code.ops[fragment.pc as usize];
                    if let Control::Barrier(Barrier {
                        kind: BarrierKind::Reduce { how, output, .. },
                        ..
                    }) = runner.code.controls[op.extra as usize]
                    {
                        runner.enter(warp, &fragment);
                        let value = outcome.value(how);
                        deliver(&mut runner.ctx, how, output, value);
                    }
                    warp.ready.push(Fragment { pc: fragment.pc + 1, ..fragment });
                }
            }
        }
    }

    /// Reports the release of a barrier to the block's shadow.
    fn report_release(&self, warps: &[Warp], runner: &mut Runner<'_>, id: u32) {
        let Some(shadow) = runner.shadow() else { return };
        let here = |warp: &Warp| warp.waiting_at(|wait| *wait == Wait::Barrier(id));
        let waiting = warps.iter().map(|warp| (warp.index, here(warp)));
        let all = waiting.clone().map(|(_, lanes)| lanes.count_ones()).sum::<u32>();
        shadow.release(id, all == self.live.threads, waiting);
    }
}

/// Returns the lowest lane in the mask.
pub(crate) fn first_lane(lanes: u32) -> usize {
    lanes.trailing_zeros() as usize & 31
}

fn deliver(ctx: &mut Ctx<'_>, how: Reduce, output: Slot, value: u32) {
    let mask = ctx.mask;
    match how {
        Reduce::Popc => ctx.write(output, mask, &[value; LANES]),
        Reduce::And | Reduce::Or => ctx.set_pred(output, mask, if value != 0 { mask } else { 0 }),
    }
}

/// The operands with which threads arrive at a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Purpose {
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
struct BarrierState {
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
struct Outcome {
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

/// Describes a parked fragment, for faults.
pub(crate) fn waiting(code: &Code, warp: u32, (fragment, wait): &(Fragment, Wait)) -> Waiting {
    let waits_for = match wait {
        Wait::Barrier(id) => WaitsFor::Barrier(*id),
        Wait::Members(_) => WaitsFor::Warp,
    };
    waiting_for(waits_for, code, warp, fragment)
}

/// Describes a fragment that waits for `waits_for`, for faults.
pub(crate) fn waiting_for(
    waits_for: WaitsFor,
    code: &Code,
    warp: u32,
    fragment: &Fragment,
) -> Waiting {
    Waiting {
        warp,
        lanes: fragment.mask,
        waits_for,
        instruction: code.instruction(fragment.pc).to_owned(),
        line: code.lines[fragment.pc as usize],
        source: code.sources.line(fragment.pc),
    }
}

/// Returns whether the fragment waits at a barrier that the whole warp must execute.
fn is_aligned(code: &Code, fragment: &Fragment) -> bool {
    let op = &code.ops[fragment.pc as usize];
    matches!(code.controls.get(op.extra as usize), Some(Control::Barrier(b)) if b.aligned)
}

/// Returns the lanes with the same barrier and thread count as the first lane.
fn lanes_at_same_barrier(ctx: &Ctx<'_>, barrier: &Barrier, lanes: u32) -> u32 {
    if barrier.constant {
        return lanes;
    }
    let one = |slot, lane| if slot == Slot::NONE { 0 } else { ctx.lane::<u32>(slot, lane) };
    let of = |lane| (one(barrier.id, lane), one(barrier.threads, lane));
    let first = of(lanes.trailing_zeros() as usize & 31);
    lanes_of(lanes).filter(|&lane| of(lane) == first).fold(0, |mask, lane| mask | 1 << lane)
}

/// Creates the fault for lanes that name different barriers in one aligned instruction.
fn mixed_barriers(
    ctx: &Ctx<'_>,
    warp: &Warp,
    at: Fragment,
    others: Fragment,
    barrier: &Barrier,
) -> FaultKind {
    let waiting = |fragment: Fragment| {
        let id = ctx.lane::<u32>(barrier.id, fragment.mask.trailing_zeros() as usize & 31);
        waiting(ctx.code, warp.index, &(fragment, Wait::Barrier(id)))
    };
    FaultKind::BarrierDivergence { at: waiting(at), elsewhere: waiting(others) }
}

/// Returns the fault if other lanes of the warp wait at another aligned barrier.
fn diverged(ctx: &Ctx<'_>, warp: &Warp, at: Fragment, barrier: &Barrier) -> Option<FaultKind> {
    if !barrier.aligned || barrier.kind == BarrierKind::Arrive {
        return None;
    }
    let elsewhere = warp.parked.iter().find(|(fragment, wait)| {
        matches!(wait, Wait::Barrier(_)) && fragment.pc != at.pc && is_aligned(ctx.code, fragment)
    })?;
    let id = ctx.lane::<u32>(barrier.id, at.mask.trailing_zeros() as usize & 31);
    let at = waiting(ctx.code, warp.index, &(at, Wait::Barrier(id)));
    let elsewhere = waiting(ctx.code, warp.index, elsewhere);
    Some(FaultKind::BarrierDivergence { at, elsewhere })
}

/// For a warp in which no lane can continue: returns the fault if some lanes wait at an aligned barrier and others
/// elsewhere.
pub(crate) fn divergence(code: &Code, warp: &Warp) -> Option<(u32, Fragment, FaultKind)> {
    let parked = || warp.parked.iter();
    let at = parked()
        .find(|(fragment, wait)| matches!(wait, Wait::Barrier(_)) && is_aligned(code, fragment))?;
    let elsewhere = parked().find(|(fragment, _)| fragment.pc != at.0.pc)?;
    let index = warp.index;
    let (here, there) = (waiting(code, index, at), waiting(code, index, elsewhere));
    Some((index, at.0, FaultKind::BarrierDivergence { at: here, elsewhere: there }))
}
