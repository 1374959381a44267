//! Turns: submissions that use recorded memory, or a variable of a module, make their claims one after the other.
//!
//! # Rules
//! A history may hold the claim of a submission that is not published yet, and no submission can name an unpublished
//! ticket. Among live handles such a claim only reads, because a writer holds its memory exclusively while it submits.
//! A replay holds no such right: it writes memory without holding its handles. Nor does a launch that writes a variable.
//! Therefore:
//! - An allocation is *marked* when a recording uses it, while the recorded operation holds the handle. A mark is never
//!   removed. A variable is marked from the start.
//! - A submission that uses a marked allocation holds that allocation's turn from before its claims until it is
//!   published or refused. A replay holds the turns of everything that it uses until its last node is published.
//! - Turns are taken with the order lock of the stream held, in the order of the allocations' ids. So turns and
//!   order locks cannot deadlock.
//!
//! A submission that found an allocation unmarked may meet a replay on it. Both then only read. If one of them wrote,
//! its handle was exclusive: the submission ended before the recording used the memory, or began after that and found
//! the mark.

use smallvec::SmallVec;

use super::allocation::{Allocation, Operand};
use crate::sync::MutexGuard;

/// The turns of some allocations, until they are dropped.
#[derive(Default)]
pub(crate) struct Turns<'a>(
    // Held, never read.
    #[allow(dead_code)] SmallVec<[MutexGuard<'a, ()>; 4]>,
);

impl<'a> Turns<'a> {
    /// Takes the turns of those operands whose allocation is marked. Called with the order lock held, on a value that holds
    /// no turns yet.
    pub(super) fn take(&mut self, operands: &[Operand<'a>]) {
        let marked = operands.iter().map(|operand| operand.allocation);
        let mut marked: SmallVec<[&Allocation; 4]> =
            marked.filter(|allocation| allocation.takes_turns()).collect();
        marked.sort_unstable_by_key(|allocation| allocation.id().0);
        marked.dedup_by_key(|allocation| allocation.id());
        self.take_sorted(marked);
    }

    /// Takes the turns of different allocations, which are sorted by their ids. Called with the order lock held, on a
    /// value that holds no turns yet. Extends in place, because a constructor would move the guards.
    #[inline]
    pub(crate) fn take_sorted(&mut self, allocations: impl IntoIterator<Item = &'a Allocation>) {
        self.0.extend(allocations.into_iter().map(|allocation| allocation.turn.lock()));
    }
}
