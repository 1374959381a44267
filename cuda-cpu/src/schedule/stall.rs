//! Detects that all threads of a block wait for mbarriers and none can make progress, and describes waiting threads for
//! deadlock faults.
//!
//! A thread that tries to wait for an mbarrier is suspended while another thread of its block can run. If none can, all
//! waits expire: the instruction returns without success. PTX permits this, because the suspension time is limited. The
//! block hangs if its threads then only retry, again and again.

use super::barriers::{waiting, waiting_for};
use super::runner::Runner;
use super::warp::{Fragment, Wait, Warp};
use crate::exec::memory::locate::address;
use crate::fault::{Waiting, WaitsFor};
use crate::isa::operand::Slot;
use crate::machine::code::Code;
use crate::machine::team::Team;

/// Maximum number of consecutive expiries without any other progress.
const MAX_EXPIRIES: u32 = 1000;

/// The progress of a block.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    /// Number of passes over the warps without progress.
    passes: usize,
    moved: u64,
    /// Number of expiries, and the value of [`Team::looks`] at the last one.
    expiries: u32,
    looks: u64,
}

impl Stall {
    /// Called after each warp has had its turn. Returns true if the block hangs.
    pub(crate) fn hangs(&mut self, code: &Code, warps: &[Warp], team: &mut Team) -> bool {
        let was_expired = std::mem::take(&mut team.expired);
        let moved = std::mem::replace(&mut self.moved, team.moved) != team.moved;
        if moved || !all_suspended(code, warps) {
            self.passes = 0;
            // Threads whose waits expire continue by themselves. That alone is no progress.
            if moved {
                self.expiries = 0;
            }
            return false;
        }
        if was_expired {
            self.passes = 0;
        }
        // In a turn, one fragment of a warp retries its wait. The next turn runs the next fragment.
        let parts = warps.iter().map(|warp| warp.ready.len()).max().unwrap_or(0);
        self.passes += 1;
        if self.passes <= parts {
            return false;
        }
        self.passes = 0;
        team.expired = true;
        let looked = std::mem::replace(&mut self.looks, team.looks) != team.looks;
        self.expiries = if looked { 0 } else { self.expiries.saturating_add(1) };
        self.expiries > MAX_EXPIRIES
    }
}

/// Returns whether every ready fragment of the block is suspended, and there is at least one.
fn all_suspended(code: &Code, warps: &[Warp]) -> bool {
    let mut parts = warps.iter().flat_map(|warp| &warp.ready).peekable();
    parts.peek().is_some() && parts.all(|part| is_suspended(code, part))
}

/// Returns whether the fragment is suspended: it is right after the pause of an instruction that may have to wait.
fn is_suspended(code: &Code, part: &Fragment) -> bool {
    code.suspensions.binary_search(&part.pc).is_ok()
}

/// Returns whether a suspended fragment waits for an mbarrier. Otherwise it waits for its cluster.
fn waits_for_mbarrier(code: &Code, part: &Fragment) -> bool {
    code.ops[part.pc as usize].d != Slot::NONE
}

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
            first = first.or(Some((warp.index, part)));
            all.push(match wait {
                Some(wait) => waiting(runner.code, warp.index, &(part, wait)),
                None => {
                    let waits_for = suspended(runner, warp, &part);
                    waiting_for(waits_for, runner.code, warp.index, &part)
                }
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
