//! The barriers of a block: parks who arrives, and lets go on who has waited.

use smallvec::SmallVec;

use super::barrier::{BARRIERS, BarrierState};
use super::code::{Barrier, BarrierKind, Control, Reduce};
use super::ctx::{Ctx, LANES, lanes_of};
use super::divergence::{apart, diverged, together};
use super::fault::FaultKind;
use super::op::Slot;
use super::runner::Runner;
use super::warp::{Fragment, Wait, Warp};

/// See the module.
#[derive(Default)]
pub(crate) struct Barriers {
    /// Threads of the block that have not exited: for those a barrier waits.
    pub(crate) live_threads: u32,
    states: [BarrierState; BARRIERS],
    /// The barriers at which somebody has arrived.
    begun: u32,
}

impl Barriers {
    /// For a block of so many threads that begins.
    pub(crate) fn restart(&mut self, threads: u32) {
        self.live_threads = threads;
        for id in lanes_of(std::mem::take(&mut self.begun)) {
            self.states[id] = BarrierState::default();
        }
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
        if let Some(others) = self.states[id as usize].disagrees(given.unwrap_or(0)) {
            let kind = FaultKind::BarrierCount { barrier: id, threads: given.unwrap_or(0), others };
            ctx.fail(lane, kind);
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
        let state = &mut self.states[id as usize];
        state.arrive(warp.index, threads, absent, given.unwrap_or(0), holding);
        if barrier.kind == BarrierKind::Arrive {
            warp.ready.push(Fragment { pc: at.pc + 1, ..at });
        } else {
            warp.parked.push((at, Wait::Barrier(id)));
        }
        Ok(())
    }

    /// Lets those go on whose barrier is complete.
    #[inline]
    pub(crate) fn release(&mut self, warps: &mut [Warp], runner: &mut Runner<'_>) {
        if self.begun != 0 {
            self.release_begun(warps, runner);
        }
    }

    fn release_begun(&mut self, warps: &mut [Warp], runner: &mut Runner<'_>) {
        for id in lanes_of(self.begun) {
            let Some(outcome) = self.states[id].complete(self.live_threads) else {
                continue;
            };
            self.begun &= !(1 << id);
            let wait = Wait::Barrier(id as u32);
            self.tell_release(warps, runner, id as u32);
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

    /// Tells who watches that a barrier lets go of those who wait there.
    fn tell_release(&self, warps: &[Warp], runner: &mut Runner<'_>, id: u32) {
        let Some(shadow) = runner.shadow() else { return };
        let here = |warp: &Warp| warp.waiting_at(|wait| *wait == Wait::Barrier(id));
        let waiting = warps.iter().map(|warp| (warp.index, here(warp)));
        let all = waiting.clone().map(|(_, lanes)| lanes.count_ones()).sum::<u32>();
        shadow.release(id, all == self.live_threads, waiting);
    }
}

/// The first of these lanes.
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
