//! Poison: which bytes of device memory have lost their contents, and by which error.
//!
//! A backend checks this ledger before it runs work, and updates it when work fails or overwrites memory. So the error of a
//! failed submission reaches exactly the work that depends on it, on every stream and every backend.

use std::ops::Range;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{
    protocol::{Access, AllocId, Error, Use, Work},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// The number of separate poisoned ranges of one allocation. Beyond it the whole span from the first to the last range
/// is poisoned.
const MAX_RANGES: usize = 16;

/// A record of the poisoned memory of a device.
#[derive(Debug, Default)]
pub struct Poison {
    /// Whether any memory is poisoned. Readable without the lock. Stored under the lock.
    any: AtomicBool,
    lost: Mutex<FxHashMap<AllocId, Ranges>>,
}

type Ranges = SmallVec<[(Range<u64>, Error); 1]>;

impl Poison {
    /// Returns whether no memory is poisoned.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Returns the error for work that reads poisoned memory, or `None` for other work. Work with an error is skipped.
    ///
    /// `overwrites` says that the work replaces everything that it writes ([`Work::overwrites`]). Such work ends the
    /// poison of what it writes; a kernel does not, since it may read first.
    pub fn check(&self, uses: &[Use], overwrites: bool) -> Option<Error> {
        if self.is_empty() {
            return None;
        }
        let mut lost = self.lost.lock();
        let reads = |of: &&Use| of.access == Access::Read || !overwrites;
        let cause = uses.iter().filter(reads).find_map(|of| {
            let ranges = lost.get(&of.base)?;
            let hit = ranges.iter().find(|(range, _)| overlap(range, &of.range));
            hit.map(|(_, error)| error.clone().poison())
        });
        if cause.is_none() && overwrites {
            let written = uses.iter().filter(|of| of.access == Access::Write);
            written.for_each(|of| end(&mut lost, of));
            self.any.store(!lost.is_empty(), Ordering::Release);
        }
        cause
    }

    /// Poisons all memory that these uses write.
    pub fn spread(&self, uses: &[Use], error: &Error) {
        let mut lost = self.lost.lock();
        for of in uses.iter().filter(|of| of.access == Access::Write && !of.range.is_empty()) {
            end(&mut lost, of);
            let ranges = lost.entry(of.base).or_default();
            ranges.push((of.range.clone(), error.clone()));
            merge(ranges);
        }
        self.any.store(!lost.is_empty(), Ordering::Release);
    }

    /// Poisons an allocation that could not be made.
    pub fn spread_over(&self, alloc: AllocId, error: &Error) {
        self.spread(&[Use { base: alloc, range: 0..u64::MAX, access: Access::Write }], error);
    }

    /// Removes the poison of an allocation that was freed.
    pub fn forget(&self, alloc: AllocId) {
        if !self.is_empty() {
            let mut lost = self.lost.lock();
            lost.remove(&alloc);
            self.any.store(!lost.is_empty(), Ordering::Release);
        }
    }
}

/// Returns the memory uses of `work`, for a backend that keeps them until the work runs.
pub fn uses_of(work: &Work<'_>) -> SmallVec<[Use; 2]> {
    let mut uses = SmallVec::new();
    work.uses(|of| uses.push(of));
    uses
}

/// Whether two ranges have bytes in common. An empty range has none.
fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

/// Removes the bytes of `of` from the poisoned ranges.
fn end(lost: &mut FxHashMap<AllocId, Ranges>, of: &Use) {
    let Some(ranges) = lost.get_mut(&of.base) else { return };
    let mut left = Ranges::new();
    for (range, error) in ranges.drain(..) {
        let (before, after) =
            (range.start..range.end.min(of.range.start), range.start.max(of.range.end)..range.end);
        let parts = if overlap(&range, &of.range) { [before, after] } else { [range, 0..0] };
        left.extend(parts.into_iter().filter(|it| !it.is_empty()).map(|it| (it, error.clone())));
    }
    *ranges = left;
    if ranges.is_empty() {
        lost.remove(&of.base);
    }
}

/// Merges adjacent ranges with one cause. Merges all ranges if there are more than [`MAX_RANGES`].
fn merge(ranges: &mut Ranges) {
    ranges.sort_by_key(|(range, _)| range.start);
    ranges.dedup_by(|next, kept| {
        let join = kept.0.end == next.0.start && kept.1 == next.1;
        if join {
            kept.0.end = next.0.end;
        }
        join
    });
    if ranges.len() > MAX_RANGES {
        let last = ranges.iter().map(|(range, _)| range.end).max().unwrap_or(0);
        ranges.truncate(1);
        ranges[0].0.end = last;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn used(range: Range<u64>, access: Access) -> [Use; 1] {
        [Use { base: AllocId(1), range, access }]
    }

    fn reads(poison: &Poison, range: Range<u64>) -> bool {
        poison.check(&used(range, Access::Read), true).is_none()
    }

    #[test]
    fn overwrite_ends_poison_of_exactly_its_bytes() {
        let poison = Poison::default();
        poison.spread(&used(10..50, Access::Write), &Error::AlreadyEnded);
        assert!(reads(&poison, 0..10) && reads(&poison, 50..60) && !reads(&poison, 49..60));
        assert_eq!(poison.check(&used(20..30, Access::Write), true), None);
        assert!(reads(&poison, 20..30) && !reads(&poison, 19..30) && !reads(&poison, 20..31));
        assert_eq!(poison.check(&used(0..100, Access::Write), true), None);
        assert!(!poison.any.load(Ordering::Relaxed));
    }

    #[test]
    fn a_kernel_that_may_read_first_is_skipped_with_the_root_cause() {
        let poison = Poison::default();
        poison.spread(&used(0..8, Access::Write), &Error::AlreadyEnded);
        let cause = poison.check(&used(0..8, Access::Write), false).unwrap();
        let expected = Error::ContentsLost { cause: Box::new(Error::AlreadyEnded) };
        assert_eq!(cause, expected);
        assert_eq!(cause.poison(), expected);
    }

    #[test]
    fn empty_range_reads_no_poison() {
        let poison = Poison::default();
        poison.spread(&used(0..8, Access::Write), &Error::AlreadyEnded);
        assert!(reads(&poison, 4..4));
        assert_eq!(poison.check(&used(4..4, Access::Write), false), None);
        assert!(!reads(&poison, 4..5));
    }

    #[test]
    fn ranges_beyond_the_limit_merge_and_stay_poisoned() {
        let poison = Poison::default();
        for n in 0..100 {
            poison.spread(&used(10 * n..10 * n + 5, Access::Write), &Error::AlreadyEnded);
        }
        assert!((0..100).all(|n| !reads(&poison, 10 * n..10 * n + 1)));
        assert!(poison.lost.lock()[&AllocId(1)].len() <= MAX_RANGES);
        poison.forget(AllocId(1));
        assert!(reads(&poison, 0..1000));
    }
}
