//! The sixteen named barriers of a block: counting, not scheduling.

use super::code::Reduce;

/// How many there are.
pub(crate) const BARRIERS: usize = 16;

/// One barrier between two completions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BarrierState {
    arrived: u32,
    /// The thread count given; 0: all threads of the block that have not exited.
    expected: u32,
    /// Warps that have arrived (bit by index): each counts its missing lanes once.
    warps: u32,
    /// `bar.red`: how many predicates were true.
    holding: u32,
}

impl BarrierState {
    /// The thread count that others have given who have arrived, if it is another one.
    pub(crate) fn disagrees(&self, expected: u32) -> Option<u32> {
        let both = self.arrived != 0 && self.expected != 0 && expected != 0;
        (both && self.expected != expected).then_some(self.expected)
    }

    /// Threads arrive. `absent` are the lanes of their warp that do not exist or have exited; when
    /// a thread count is given they count as arrived, because barriers count whole warps.
    pub(crate) fn arrive(
        &mut self,
        warp: u32,
        threads: u32,
        absent: u32,
        expected: u32,
        holding: u32,
    ) {
        // A thread may say that it is here again and again.
        self.arrived = self.arrived.saturating_add(threads);
        self.holding = self.holding.saturating_add(holding);
        if expected != 0 {
            self.expected = expected;
            if self.warps >> warp & 1 == 0 {
                self.arrived = self.arrived.saturating_add(absent);
            }
        }
        self.warps |= 1 << (warp & 31);
    }

    /// Everybody is here: gives the count of true predicates and how many arrived, and begins anew.
    pub(crate) fn complete(&mut self, live: u32) -> Option<Outcome> {
        let wanted = if self.expected == 0 { live } else { self.expected };
        if self.arrived == 0 || self.arrived < wanted {
            return None;
        }
        let done = std::mem::take(self);
        Some(Outcome { holding: done.holding, arrived: done.arrived })
    }
}

/// What a completed `bar.red` knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    holding: u32,
    arrived: u32,
}

impl Outcome {
    /// The reduction's result: a count, or 0 or 1.
    pub(crate) fn value(&self, how: Reduce) -> u32 {
        match how {
            Reduce::Popc => self.holding,
            Reduce::And => u32::from(self.holding == self.arrived),
            Reduce::Or => u32::from(self.holding != 0),
        }
    }
}
