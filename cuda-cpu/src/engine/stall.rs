//! Notices when all threads of a block wait for barriers in memory, and nobody can let them go.
//!
//! A thread that tries to wait for an mbarrier is suspended, for as long as some thread of its block can do something.
//! When none can, all of them go on without success, as they may: a real processor lets them wait for some time only.
//! If they do nothing but come back, again and again, the block hangs.

use super::code::Code;
use super::op::Slot;
use super::team::Team;
use super::warp::{Fragment, Warp};

/// How often all may come back without anything else having happened.
const PATIENCE: u32 = 1000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    /// Passes over the warps in which nothing moved.
    passes: usize,
    moved: u64,
    /// How often waits have ended without success, and what had been looked at by then.
    expiries: u32,
    looks: u64,
}

impl Stall {
    /// Called when every warp had its turn: true if the block hangs.
    pub(crate) fn hangs(&mut self, code: &Code, warps: &[Warp], team: &mut Team) -> bool {
        let was_expired = std::mem::take(&mut team.expired);
        let moved = std::mem::replace(&mut self.moved, team.moved) != team.moved;
        if moved || !all_suspended(code, warps) {
            self.passes = 0;
            // Those whose waits have ended come back on their own; that alone is no progress.
            if moved {
                self.expiries = 0;
            }
            return false;
        }
        if was_expired {
            self.passes = 0;
        }
        // In a turn, one part of a warp looks; then the next one.
        let parts = warps.iter().map(|warp| warp.ready.len()).max().unwrap_or(0);
        self.passes += 1;
        if self.passes <= parts {
            return false;
        }
        self.passes = 0;
        team.expired = true;
        let looked = std::mem::replace(&mut self.looks, team.looks) != team.looks;
        self.expiries = if looked { 0 } else { self.expiries + 1 };
        self.expiries > PATIENCE
    }
}

/// Every part of every warp that could run stands behind a pause.
fn all_suspended(code: &Code, warps: &[Warp]) -> bool {
    let mut parts = warps.iter().flat_map(|warp| &warp.ready).peekable();
    parts.peek().is_some() && parts.all(|part| is_suspended(code, part))
}

/// It stands behind the pause of an instruction that may have to wait.
pub(crate) fn is_suspended(code: &Code, part: &Fragment) -> bool {
    code.suspensions.binary_search(&part.pc).is_ok()
}

/// Whether a suspended part waits for an mbarrier, not for its cluster.
pub(crate) fn waits_for_mbarrier(code: &Code, part: &Fragment) -> bool {
    code.ops[part.pc as usize].d != Slot::NONE
}
