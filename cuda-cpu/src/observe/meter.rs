//! The instruction limit of a launch.
//!
//! Each instruction of the PTX counts once each time that a warp or a fragment of it executes it. The number of
//! executing lanes does not matter, and an instruction also counts if its guard is false for all of them. Ops that the
//! decoder adds do not count.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of instructions that a worker reserves at a time.
const BATCH: u64 = 256;

/// The instruction limit that the workers of a launch share.
#[derive(Debug)]
pub(crate) struct InstructionBudget {
    pub(crate) limit: u64,
    spent: AtomicU64,
}

/// The instruction counter of a worker.
pub(crate) struct Meter<'a> {
    budget: Option<&'a InstructionBudget>,
    /// Instructions until the counter checks the budget again.
    left: u64,
    given: u64,
    /// Whether there is no other worker.
    alone: bool,
}

impl InstructionBudget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, spent: AtomicU64::new(0) }
    }

    /// Counts instructions. Returns whether the limit is exceeded.
    fn exceeded_by(&self, instructions: u64) -> bool {
        let before = self.spent.fetch_add(instructions, Ordering::Relaxed);
        before.saturating_add(instructions) > self.limit
    }
}

impl<'a> Meter<'a> {
    /// Creates a counter. A single worker stops right after the last instruction within the limit. Each of several
    /// workers may execute up to [`BATCH`] further instructions, but the decision whether a launch exceeds its limit is
    /// also exact.
    pub(crate) fn new(budget: Option<&'a InstructionBudget>, alone: bool) -> Self {
        let given = match budget {
            None => u64::MAX,
            Some(budget) if alone => budget.limit,
            Some(_) => BATCH,
        };
        Self { budget, left: given, given, alone }
    }

    /// Counts the next instruction. Returns false if it must not execute.
    #[inline]
    pub(crate) fn spend(&mut self) -> bool {
        if self.left == 0 && !self.refill() {
            return false;
        }
        self.left -= 1;
        true
    }

    #[cold]
    fn refill(&mut self) -> bool {
        let more = !self.alone && !self.finish();
        if more {
            self.left = BATCH;
            self.given = BATCH;
        }
        more
    }

    /// Counts the executed instructions. Returns whether all workers together exceed the limit.
    pub(crate) fn finish(&mut self) -> bool {
        let executed = std::mem::take(&mut self.given) - std::mem::take(&mut self.left);
        self.budget.is_some_and(|budget| !self.alone && budget.exceeded_by(executed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spend(meter: &mut Meter<'_>, most: u64) -> u64 {
        (0..most).take_while(|_| meter.spend()).count() as u64
    }

    #[test]
    fn single_worker_stops_at_the_limit() {
        for limit in [0, 1, BATCH, 1000] {
            let budget = InstructionBudget::new(limit);
            let mut meter = Meter::new(Some(&budget), true);
            assert_eq!(spend(&mut meter, 5000), limit);
            assert!(!meter.spend());
        }
        assert_eq!(spend(&mut Meter::new(None, true), 5000), 5000);
    }

    #[test]
    fn several_workers_detect_the_limit_exactly() {
        for (limit, over) in [(1000, false), (999, true), (0, true)] {
            let budget = InstructionBudget::new(limit);
            let (mut a, mut b) =
                (Meter::new(Some(&budget), false), Meter::new(Some(&budget), false));
            let done = spend(&mut a, 700) == 700 && spend(&mut b, 300) == 300;
            let exceeded = a.finish() | b.finish();
            assert_eq!(!done || exceeded, over, "{limit}");
        }
        // An endless loop stops.
        let budget = InstructionBudget::new(1000);
        let spent = spend(&mut Meter::new(Some(&budget), false), u64::MAX);
        assert!((1000..1000 + 2 * BATCH).contains(&spent), "{spent}");
    }
}
