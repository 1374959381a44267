//! Barriers that all lanes of a warp have to execute together, and lanes that do not.
//!
//! `bar.sync`, `bar.red` and `barrier..aligned` are for whole warps. Lanes that come later are fine here,
//! as long as they come to the same instruction, and so are lanes that have exited. It is a fault when lanes of a
//! warp wait at two such instructions; and when nobody in the block can go on, and some lanes of a warp wait at
//! one and others elsewhere. Lanes that only say that they are there (`bar.arrive`) do not wait.

use super::code::{Barrier, BarrierKind, Code, Control};
use super::ctx::{Ctx, lanes_of};
use super::fault::{FaultKind, Waiting, WaitsFor};
use super::op::Slot;
use super::warp::{Fragment, Wait, Warp};

/// A parked fragment, for faults.
pub(crate) fn waiting(code: &Code, warp: u32, (fragment, wait): &(Fragment, Wait)) -> Waiting {
    Waiting {
        warp,
        lanes: fragment.mask,
        waits_for: match wait {
            Wait::Barrier(id) => WaitsFor::Barrier(*id),
            Wait::Members(_) => WaitsFor::Warp,
        },
        instruction: code.instruction(fragment.pc).to_owned(),
        line: code.lines[fragment.pc as usize],
        source: code.sources.line(fragment.pc),
    }
}

/// Whether it waits at a barrier that its whole warp has to execute.
fn is_aligned(code: &Code, fragment: &Fragment) -> bool {
    let op = &code.ops[fragment.pc as usize];
    matches!(code.controls.get(op.extra as usize), Some(Control::Barrier(b)) if b.aligned)
}

/// The lanes that come to the same barrier, for the same number of threads, as the first one of them.
pub(crate) fn together(ctx: &Ctx<'_>, barrier: &Barrier, lanes: u32) -> u32 {
    if barrier.constant {
        return lanes;
    }
    let one = |slot, lane| if slot == Slot::NONE { 0 } else { ctx.lane::<u32>(slot, lane) };
    let of = |lane| (one(barrier.id, lane), one(barrier.threads, lane));
    let first = of(lanes.trailing_zeros() as usize & 31);
    lanes_of(lanes).filter(|&lane| of(lane) == first).fold(0, |mask, lane| mask | 1 << lane)
}

/// What is wrong with lanes that come to different barriers in one instruction.
pub(crate) fn apart(
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

/// What is wrong with lanes that come to a barrier, while others of their warp wait at another one.
pub(crate) fn diverged(
    ctx: &Ctx<'_>,
    warp: &Warp,
    at: Fragment,
    barrier: &Barrier,
) -> Option<FaultKind> {
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

/// For a warp of which no lane can go on: those at a barrier that others of them should have come to.
pub(crate) fn divergence(code: &Code, warp: &Warp) -> Option<(u32, Fragment, FaultKind)> {
    let parked = || warp.parked.iter();
    let at = parked()
        .find(|(fragment, wait)| matches!(wait, Wait::Barrier(_)) && is_aligned(code, fragment))?;
    let elsewhere = parked().find(|(fragment, _)| fragment.pc != at.0.pc)?;
    let index = warp.index;
    let (here, there) = (waiting(code, index, at), waiting(code, index, elsewhere));
    Some((index, at.0, FaultKind::BarrierDivergence { at: here, elsewhere: there }))
}
