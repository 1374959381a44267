//! The named barriers of a block: parks fragments that arrive, and releases them when the barrier completes.

use smallvec::SmallVec;

use super::{
    barrier_state::{BarrierState, Live, Purpose},
    divergence::{diverged, lanes_at_same_barrier, mixed_barriers},
    runner::Runner,
    warp::{Fragment, Wait, Warp},
};
use crate::{
    fault::FaultKind,
    isa::{
        barrier::{Barrier, BarrierKind, Reduce},
        sizes::{BARRIERS, MAX_BLOCK_THREADS},
        slot::Slot,
    },
    lanes::{LANES, lanes_of},
    machine::{code::Control, ctx::Ctx},
};

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
