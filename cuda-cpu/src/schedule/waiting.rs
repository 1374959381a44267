//! Describes the waiting threads of a block, for deadlock faults.

use super::{
    runner::Runner,
    stall::{is_suspended, waits_for_mbarrier},
    warp::{Fragment, Wait, Warp},
};
use crate::{
    exec::memory::single_lane::address,
    fault::{Waiting, WaitsFor},
};

/// Describes all threads of a block. Also returns the first fragment with its warp.
pub(crate) fn waiting_threads(
    runner: &mut Runner<'_>,
    warps: &mut [Warp],
) -> (Vec<Waiting>, Option<(u32, Fragment)>) {
    let (mut all, mut first) = (Vec::new(), None);
    for warp in warps {
        let parked = warp.parked.iter().map(|&(part, wait)| (part, Some(wait)));
        let ready = warp.ready.iter().map(|&part| (part, None));
        let parts: Vec<(Fragment, Option<Wait>)> = parked.chain(ready).collect();
        for (part, wait) in parts {
            let waits_for = match wait {
                Some(Wait::Barrier(id)) => WaitsFor::Barrier(id),
                Some(Wait::Members(_)) => WaitsFor::Warp,
                None => suspended(runner, warp, &part),
            };
            first = first.or(Some((warp.index, part)));
            let code = runner.code;
            all.push(Waiting {
                warp: warp.index,
                lanes: part.mask,
                waits_for,
                instruction: code.instruction(part.pc).to_owned(),
                line: code.lines[part.pc as usize],
                source: code.sources.line(part.pc),
            });
        }
    }
    (all, first)
}

fn suspended(runner: &mut Runner<'_>, warp: &mut Warp, part: &Fragment) -> WaitsFor {
    if !is_suspended(runner.code, part) || !waits_for_mbarrier(runner.code, part) {
        return WaitsFor::Cluster;
    }
    // The instruction that tests the mbarrier follows the suspension point.
    let Some(look) = runner.code.ops.get(part.pc as usize + 1) else { return WaitsFor::Cluster };
    runner.enter(warp, part);
    let lane = part.mask.trailing_zeros() as usize & 31;
    WaitsFor::Mbarrier(address(&runner.ctx, look, lane))
}
