//! Detects divergence at barriers that all lanes of a warp must execute together.
//!
//! `bar.sync`, `bar.red` and `barrier.*.aligned` are for whole warps. Lanes may arrive later if they arrive at the same
//! instruction, and lanes that have exited do not count. It is a fault if lanes of a warp wait at two different barrier
//! instructions. It is also a fault if no thread of the block can continue while some lanes of a warp wait at a barrier
//! and others elsewhere. Lanes that execute `bar.arrive` do not wait.

use super::warp::{Fragment, Wait, Warp};
use crate::fault::{FaultKind, Waiting, WaitsFor};
use crate::isa::barrier::{Barrier, BarrierKind};
use crate::isa::slot::Slot;
use crate::lanes::lanes_of;
use crate::machine::code::{Code, Control};
use crate::machine::ctx::Ctx;

/// Describes a parked fragment, for faults.
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

/// Returns whether the fragment waits at a barrier that the whole warp must execute.
fn is_aligned(code: &Code, fragment: &Fragment) -> bool {
    let op = &code.ops[fragment.pc as usize];
    matches!(code.controls.get(op.extra as usize), Some(Control::Barrier(b)) if b.aligned)
}

/// Returns the lanes with the same barrier and thread count as the first lane.
pub(crate) fn lanes_at_same_barrier(ctx: &Ctx<'_>, barrier: &Barrier, lanes: u32) -> u32 {
    if barrier.constant {
        return lanes;
    }
    let one = |slot, lane| if slot == Slot::NONE { 0 } else { ctx.lane::<u32>(slot, lane) };
    let of = |lane| (one(barrier.id, lane), one(barrier.threads, lane));
    let first = of(lanes.trailing_zeros() as usize & 31);
    lanes_of(lanes).filter(|&lane| of(lane) == first).fold(0, |mask, lane| mask | 1 << lane)
}

/// Creates the fault for lanes that name different barriers in one aligned instruction.
pub(crate) fn mixed_barriers(
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
