//! Access histories: which earlier accesses an access has to come after. Independent of devices.
//!
//! The same rule serves live streams, whose accesses are at [tickets](Ticket), and recordings, whose accesses are at
//! nodes: see [`Position`].
//!
//! A history keeps the last writes of some memory and, per stream, its last read since then. A read comes after the
//! writes, a write after both. Accesses of one stream are ordered by the stream itself. A write replaces everything
//! before it.
//!
//! An allocation has one history per *piece* ([`Pieces`]). Normally the whole allocation is one piece. Splitting a
//! buffer adds a boundary, so that its parts are ordered separately.
//!
//! # Accesses of an allocation
//! [`Accesses`] holds three numbers while one stream alone uses the allocation, and histories under a lock otherwise.
//!
//! - `read` selects the valid form. Unless it is [`SHARED`], one stream alone has used the memory since it was last
//!   written whole: the numbers `stream`, `written` and `read` are its history, and `pieces` is stale. If it is
//!   `SHARED`, only `pieces` is valid.
//! - A write that needs no lock has exclusive access to the memory, as `&mut` has. While the numbers are valid there is
//!   one piece, so no other thread claims or splits anything until the write is claimed. Loads and stores suffice. A
//!   replay of a recording has no exclusive access, and neither has a foreign call, nor a launch that writes a variable
//!   of its module. So accesses to such memory take the lock ([`Accesses::claim_locked`]). Under it they use the
//!   numbers while these are valid.
//! - Reads come from several threads. A read on the stream that `stream` names replaces `read`, by compare-and-swap. It
//!   changes neither `stream` nor `written`, so they stay as the last write left them.
//! - The lock is taken before `read` becomes `SHARED`. A read that replaced `read` before that is in the histories. A
//!   later one fails to replace it, and waits for the lock.
//! - Only a write of the whole allocation ends `SHARED`.
//!
//! # Poison
//! [`Poison`] holds which bytes of device memory have lost their contents, and by which error. A backend checks this
//! ledger before it runs work, and updates it when work fails or overwrites memory. So the error of a failed submission
//! reaches exactly the work that depends on it, on every stream and every backend.

use std::ops::Range;

use smallvec::SmallVec;

use crate::{
    id_map::IdMap,
    protocol::{Access, AllocId, Error, Limit, Quantity, Result, StreamId, Ticket, Use, Work},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        limit,
    },
};

/// The number of pieces that an allocation can have.
pub(crate) const MAX_PIECES: usize = limit(4096, 4);

/// Accesses that were displaced from histories: the access that displaced them has to come after them.
pub(crate) type Displaced<P = Ticket> = SmallVec<[(P, Access); 2]>;

/// The last accesses of one piece of memory.
#[derive(Debug, Clone)]
pub(crate) struct History<P = Ticket> {
    /// One entry, unless a refused submission restored another.
    writers: SmallVec<[P; 1]>,
    readers: SmallVec<[P; 2]>,
}

impl<P> Default for History<P> {
    fn default() -> Self {
        Self { writers: SmallVec::new(), readers: SmallVec::new() }
    }
}

impl History {
    /// The history of memory that only `stream` has used: the numbers of its last write, and of its last read since
    /// then. A 0 stands for none.
    fn of_stream(stream: StreamId, written: u64, read: u64) -> Self {
        let ticket = |number| Some(Ticket { stream, number }).filter(|_| number > 0);
        let (writers, readers) = (ticket(written), ticket(read));
        Self { writers: writers.into_iter().collect(), readers: readers.into_iter().collect() }
    }
}

impl<P: Position> History<P> {
    /// Enters the access that is about to be made at `at`, and adds to `displaced` the accesses of other queues that it
    /// has to come after.
    ///
    /// The access now supersedes the displaced ones. If it cannot come after a displaced access, the caller
    /// [restores](Self::restore) that one.
    #[inline]
    fn claim(&mut self, at: P, access: Access, displaced: &mut Displaced<P>) {
        if self.claim_in_place(at, access) {
            return;
        }
        self.displace(at, access, displaced);
    }

    /// Records the access and returns true, if one queue alone uses the memory. Such an access displaces nothing.
    #[inline]
    fn claim_in_place(&mut self, at: P, access: Access) -> bool {
        let [writer] = &mut self.writers[..] else { return false };
        if !writer.is_same_queue(at) {
            return false;
        }
        match (access, &mut self.readers[..]) {
            (Access::Write, []) => *writer = at,
            (Access::Read, [reader]) if reader.is_same_queue(at) => *reader = at,
            _ => return false,
        }
        true
    }

    fn displace(&mut self, at: P, access: Access, displaced: &mut Displaced<P>) {
        let other_queue = |other: &P| !other.is_same_queue(at);
        let write = |other: P| (other, Access::Write);
        let read = |other: P| (other, Access::Read);
        match access {
            Access::Write => {
                displaced.extend(self.writers.drain(..).filter(other_queue).map(write));
                if !self.readers.is_empty() {
                    displaced.extend(self.readers.drain(..).filter(other_queue).map(read));
                }
                self.writers.push(at);
            }
            Access::Read => {
                displaced.extend(self.writers.iter().copied().filter(other_queue).map(write));
                at.remove_from(&mut self.readers);
                let surplus = (self.readers.len() + 1).saturating_sub(P::MAX_READERS);
                displaced.extend(self.readers.drain(..surplus).map(read));
                self.readers.push(at);
            }
        }
    }

    /// Restores an access that `claim` displaced and that the submission could not be ordered after. A restored writer
    /// stays a writer, so that later readers come after it too.
    #[cold]
    fn restore(&mut self, at: P, access: Access) {
        match access {
            Access::Write => keep_latest(&mut self.writers, at),
            Access::Read => keep_latest(&mut self.readers, at),
        }
    }

    fn last_uses(&self) -> impl Iterator<Item = P> + '_ {
        self.writers.iter().chain(&self.readers).copied()
    }
}

impl History {
    /// Undoes the claim of a refused submission. The next submission of its stream gets the same number, so the entry
    /// is lowered to the previous number of that stream.
    #[cold]
    fn retract(&mut self, ticket: Ticket) {
        let back = |other: &mut Ticket| {
            if *other == ticket {
                other.number -= 1;
            }
            other.number > 0
        };
        self.writers.retain(back);
        self.readers.retain(back);
    }
}

#[cold]
fn too_many_pieces() -> Error {
    let most = MAX_PIECES as u64;
    Error::out_of_range("a split buffer", Quantity::Pieces, most + 1, Limit::AtMost(most))
}

/// Adds a position to a list that has at most one per queue.
fn keep_latest<A: smallvec::Array<Item: Position>>(list: &mut SmallVec<A>, at: A::Item) {
    match list.iter_mut().find(|known| known.is_same_queue(at)) {
        Some(known) => *known = known.later(at),
        None => list.push(at),
    }
}

/// The histories of an allocation, one per piece.
#[derive(Debug)]
pub(crate) struct Pieces<P = Ticket> {
    /// The history of the first piece, which begins at byte 0.
    first: History<P>,
    /// The start in bytes and the history of each other piece. Sorted; empty unless a buffer was split.
    rest: Vec<(u64, History<P>)>,
}

impl<P> Default for Pieces<P> {
    fn default() -> Self {
        Self { first: History::default(), rest: Vec::new() }
    }
}

impl Pieces {
    /// One piece, which only `stream` has used: the numbers of its last write, and of its last read since then. A 0
    /// stands for none.
    pub(crate) fn of_stream(stream: StreamId, written: u64, read: u64) -> Self {
        Self { first: History::of_stream(stream, written, read), rest: Vec::new() }
    }
}

impl<P: Position> Pieces<P> {
    /// As [`History::claim`], for every piece that `range` touches. `whole` states that the access covers all bytes. A
    /// write of all bytes merges the pieces into one: its caller has exclusive access to every part, or it is a write
    /// of a recording, which takes turns with the users of the parts.
    #[inline]
    pub(crate) fn claim(
        &mut self,
        at: P,
        access: Access,
        range: &Range<u64>,
        whole: bool,
        displaced: &mut Displaced<P>,
    ) {
        if self.rest.is_empty() {
            return self.first.claim(at, access, displaced);
        }
        self.each_in(range, |history| history.claim(at, access, displaced));
        if whole && access == Access::Write {
            self.rest.clear();
        }
    }

    /// As [`History::restore`], for every piece that `range` touches.
    #[cold]
    pub(crate) fn restore(&mut self, range: &Range<u64>, displaced: &[(P, Access)]) {
        self.each_in(range, |history| {
            displaced.iter().for_each(|(at, access)| history.restore(*at, *access));
        });
    }

    /// Adds boundaries at these bytes, except where there is one.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there would be more than [`MAX_PIECES`] pieces. No boundary is added then.
    pub(crate) fn split(&mut self, at: impl IntoIterator<Item = u64>) -> Result<()> {
        let mut new = SmallVec::<[u64; 4]>::new();
        for at in at.into_iter().filter(|at| *at != 0) {
            if self.place_of(at).is_err() && new.last() != Some(&at) {
                if self.rest.len() + 1 + new.len() >= MAX_PIECES {
                    return Err(too_many_pieces());
                }
                new.push(at);
            }
        }
        for at in new {
            let Err(place) = self.place_of(at) else { continue };
            let history = match place {
                0 => self.first.clone(),
                _ => self.rest[place - 1].1.clone(),
            };
            self.rest.insert(place, (at, history));
        }
        Ok(())
    }

    /// The index in `rest` of the piece that begins at this byte, or as the error that of the piece behind it.
    fn place_of(&self, at: u64) -> Result<usize, usize> {
        self.rest.binary_search_by_key(&at, |(start, _)| *start)
    }

    /// Every position that has to be complete before the memory can be freed: the latest per queue.
    pub(crate) fn last_uses(&self) -> SmallVec<[P; 4]> {
        let mut last = SmallVec::<[P; 4]>::new();
        let histories =
            std::iter::once(&self.first).chain(self.rest.iter().map(|(_, history)| history));
        for at in histories.flat_map(History::last_uses) {
            keep_latest(&mut last, at);
        }
        last
    }

    /// The number of pieces that `range` touches.
    pub(crate) fn count_in(&self, range: &Range<u64>) -> usize {
        let end = self.rest.partition_point(|(start, _)| *start < range.end);
        let start = self.rest.partition_point(|(start, _)| *start <= range.start);
        end - start.min(end) + 1
    }

    fn each_in(&mut self, range: &Range<u64>, mut each: impl FnMut(&mut History<P>)) {
        let after_first = self.rest.first().map_or(u64::MAX, |(start, _)| *start);
        if range.start < after_first {
            each(&mut self.first);
        }
        let first = self.rest.partition_point(|(start, _)| *start <= range.start).saturating_sub(1);
        for at in first..self.rest.len() {
            let end = self.rest.get(at + 1).map_or(u64::MAX, |(start, _)| *start);
            if self.rest[at].0 >= range.end {
                break;
            }
            if end > range.start {
                each(&mut self.rest[at].1);
            }
        }
    }
}

impl Pieces {
    /// As [`History::retract`], for every piece.
    #[cold]
    pub(crate) fn retract(&mut self, ticket: Ticket) {
        self.each_in(&(0..u64::MAX), |history| history.retract(ticket));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

/// The accesses that later accesses of an allocation have to come after.
#[derive(Debug)]
pub(crate) struct Accesses {
    /// The id of the stream that alone uses the memory.
    stream: AtomicU64,
    /// The number of its last write; 0 if there is none.
    written: AtomicU64,
    /// The number of its last read since then, 0 if there is none, or [`SHARED`].
    read: AtomicU64,
    pieces: Mutex<Pieces>,
}

/// The value of `read` while `pieces` is valid. No submission has this number.
const SHARED: u64 = u64::MAX;

impl Accesses {
    /// The accesses of memory that `ticket` has just allocated. The allocation counts as a write.
    pub(crate) fn written(ticket: Ticket) -> Self {
        Self {
            stream: AtomicU64::new(ticket.stream.0),
            written: AtomicU64::new(ticket.number),
            read: AtomicU64::new(0),
            pieces: Mutex::default(),
        }
    }

    /// As [`Pieces::claim`]. The caller of a write has exclusive access to the bytes of `range`.
    #[inline]
    pub(crate) fn claim(
        &self,
        ticket: Ticket,
        access: Access,
        range: &Range<u64>,
        whole: bool,
        displaced: &mut Displaced,
    ) {
        if !self.claim_again(ticket, access) {
            self.claim_locked(ticket, access, range, whole, displaced);
        }
    }

    /// Records an access in the numbers, if they are valid and name the stream of `ticket`. Returns whether it did.
    /// Such an access displaces nothing.
    #[inline]
    fn claim_again(&self, ticket: Ticket, access: Access) -> bool {
        match access {
            Access::Write => self.write_again(ticket),
            Access::Read => self.read_again(ticket),
        }
    }

    #[inline]
    fn write_again(&self, ticket: Ticket) -> bool {
        let read = self.read.load(Ordering::Acquire);
        if read == SHARED || self.stream.load(Ordering::Relaxed) != ticket.stream.0 {
            return false;
        }
        self.written.store(ticket.number, Ordering::Relaxed);
        if read != 0 {
            self.read.store(0, Ordering::Release);
        }
        true
    }

    #[inline]
    fn read_again(&self, ticket: Ticket) -> bool {
        let read = self.read.load(Ordering::Acquire);
        let own = read != SHARED && self.stream.load(Ordering::Relaxed) == ticket.stream.0;
        let replace =
            |number| self.read.compare_exchange(read, number, Ordering::AcqRel, Ordering::Acquire);
        own && replace(ticket.number).is_ok()
    }

    /// As [`claim`](Self::claim), with the lock. For a write whose caller has no exclusive access to the memory. No
    /// other thread claims a write without the lock: such a caller holds the turn of the allocation, or shares a borrow
    /// of it. The numbers stay valid here. The lock excludes splits. The caller's order lock excludes other reads on
    /// the stream that the numbers name.
    pub(crate) fn claim_locked(
        &self,
        ticket: Ticket,
        access: Access,
        range: &Range<u64>,
        whole: bool,
        displaced: &mut Displaced,
    ) {
        let mut pieces = self.pieces.lock();
        if self.claim_again(ticket, access) {
            return;
        }
        self.share(&mut pieces);
        pieces.claim(ticket, access, range, whole, displaced);
        if whole && access == Access::Write {
            self.stream.store(ticket.stream.0, Ordering::Relaxed);
            self.written.store(ticket.number, Ordering::Relaxed);
            self.read.store(0, Ordering::Release);
        }
    }

    /// As [`Pieces::restore`].
    #[cold]
    pub(crate) fn restore(&self, range: &Range<u64>, displaced: &[(Ticket, Access)]) {
        self.with_pieces(|pieces| pieces.restore(range, displaced));
    }

    /// As [`Pieces::retract`].
    #[cold]
    pub(crate) fn retract(&self, ticket: Ticket) {
        self.with_pieces(|pieces| pieces.retract(ticket));
    }

    /// Adds boundaries, as [`Pieces::split`]. The caller has exclusive access to the bytes on both sides of each,
    /// except for replays, which take the lock too.
    pub(crate) fn split(&self, at: impl IntoIterator<Item = u64>) -> Result<()> {
        self.with_pieces(|pieces| pieces.split(at))
    }

    /// As [`Pieces::last_uses`]. The caller has exclusive access to the memory or to its part of it.
    pub(crate) fn last_uses(&self) -> SmallVec<[Ticket; 4]> {
        match self.read.load(Ordering::Acquire) {
            SHARED => self.pieces.lock().last_uses(),
            read => self.alone(read).last_uses(),
        }
    }

    /// Runs `change` on the histories, which are valid from now on.
    fn with_pieces<R>(&self, change: impl FnOnce(&mut Pieces) -> R) -> R {
        let mut pieces = self.pieces.lock();
        self.share(&mut pieces);
        change(&mut pieces)
    }

    /// Makes the histories valid. Called with their lock held.
    fn share(&self, pieces: &mut Pieces) {
        if self.read.load(Ordering::Acquire) != SHARED {
            *pieces = self.alone(self.read.swap(SHARED, Ordering::AcqRel));
        }
    }

    /// The histories that the numbers stand for.
    fn alone(&self, read: u64) -> Pieces {
        let stream = StreamId(self.stream.load(Ordering::Relaxed));
        Pieces::of_stream(stream, self.written.load(Ordering::Relaxed), read)
    }
}

/// The maximum number of readers in an access history. A reader is a stream, with its last read. One more reader is
/// ordered after the oldest of them and replaces it. This may add an unnecessary edge, but omits none.
pub const MAX_READERS: usize = limit(8, 2);

/// The place of an access, as a [history](super::history) stores it.
pub(crate) trait Position: Copy + Eq {
    /// The number of readers that a history stores.
    const MAX_READERS: usize;

    /// Whether the two are in one queue, so that the later one follows the earlier one without an edge.
    fn is_same_queue(self, other: Self) -> bool;

    /// The later one of two in one queue.
    fn later(self, other: Self) -> Self;

    /// Removes the reader that is in the queue of `self`, if there is one. Readers were entered in their order.
    fn remove_from(self, readers: &mut SmallVec<[Self; 2]>);
}

/// Submissions of one stream are in one queue.
impl Position for Ticket {
    const MAX_READERS: usize = MAX_READERS;

    #[inline]
    fn is_same_queue(self, other: Self) -> bool {
        self.stream == other.stream
    }

    #[inline]
    fn later(self, other: Self) -> Self {
        Ticket { number: self.number.max(other.number), ..self }
    }

    #[inline]
    fn remove_from(self, readers: &mut SmallVec<[Self; 2]>) {
        readers.retain(|other| other.stream != self.stream);
    }
}

/// Nodes of a recording have no queue: only edges order them. A node that uses the same memory twice needs no edge to
/// itself.
impl Position for u32 {
    /// No limit: an unnecessary edge would make one branch wait for another.
    const MAX_READERS: usize = usize::MAX;

    fn is_same_queue(self, other: Self) -> bool {
        self == other
    }

    fn later(self, _: Self) -> Self {
        self
    }

    /// Checks the last reader only, because no other one can be this node. A search of all readers would make a
    /// recording with many readers slow.
    fn remove_from(self, readers: &mut SmallVec<[Self; 2]>) {
        if readers.last() == Some(&self) {
            readers.pop();
        }
    }
}

/// The number of separate poisoned ranges of one allocation. Beyond it the whole span from the first to the last range
/// is poisoned.
const MAX_RANGES: usize = 16;

/// A record of the poisoned memory of a device.
#[derive(Debug, Default)]
pub struct Poison {
    /// Whether any memory is poisoned. Readable without the lock. Stored under the lock.
    any: AtomicBool,
    lost: Mutex<IdMap<AllocId, Ranges>>,
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
fn end(lost: &mut IdMap<AllocId, Ranges>, of: &Use) {
    let Some(ranges) = lost.get_mut(&of.base) else { return };
    let mut left = Ranges::new();
    for (range, error) in ranges.drain(..) {
        let (before, after) =
            (range.start..range.end.min(of.range.start), range.start.max(of.range.end)..range.end);
        let parts = if overlap(&range, &of.range) { [before, after] } else { [range, 0..0] };
        left.extend(
            parts.into_iter().filter(|part| !part.is_empty()).map(|part| (part, error.clone())),
        );
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
mod accesses_tests {
    use super::*;

    fn ticket(stream: u64, number: u64) -> Ticket {
        Ticket { stream: StreamId(stream), number }
    }

    fn claim(accesses: &Accesses, by: Ticket, access: Access) -> Vec<(Ticket, Access)> {
        let mut displaced = Displaced::new();
        accesses.claim(by, access, &(0..8), true, &mut displaced);
        displaced.to_vec()
    }

    fn is_shared(accesses: &Accesses) -> bool {
        accesses.read.load(Ordering::Relaxed) == SHARED
    }

    #[test]
    fn one_stream_needs_no_histories() {
        let accesses = Accesses::written(ticket(1, 1));
        for (number, access) in (2..).zip([Access::Read, Access::Read, Access::Write, Access::Read])
        {
            assert_eq!(claim(&accesses, ticket(1, number), access), []);
        }
        assert!(!is_shared(&accesses));
        assert_eq!(accesses.last_uses().as_slice(), [ticket(1, 5)]);
    }

    #[test]
    fn cross_stream_read_waits_for_the_writer_only() {
        let accesses = Accesses::written(ticket(1, 1));
        claim(&accesses, ticket(1, 7), Access::Read);
        assert_eq!(claim(&accesses, ticket(2, 1), Access::Read), [(ticket(1, 1), Access::Write)]);
        assert!(is_shared(&accesses));
        assert_eq!(accesses.last_uses().as_slice(), [ticket(1, 7), ticket(2, 1)]);
    }

    #[test]
    fn cross_stream_whole_write_waits_for_all_uses_and_ends_sharing() {
        let accesses = Accesses::written(ticket(1, 1));
        claim(&accesses, ticket(1, 7), Access::Read);
        let after = claim(&accesses, ticket(2, 3), Access::Write);
        assert_eq!(after, [(ticket(1, 1), Access::Write), (ticket(1, 7), Access::Read)]);
        assert!(!is_shared(&accesses));
        assert_eq!(claim(&accesses, ticket(2, 4), Access::Write), []);
        assert_eq!(accesses.last_uses().as_slice(), [ticket(2, 4)]);
    }

    /// A write of one part does not change the histories of the other parts.
    #[test]
    fn partial_write_keeps_the_histories() {
        let accesses = Accesses::written(ticket(1, 1));
        accesses.split([4]).unwrap();
        let mut displaced = Displaced::new();
        accesses.claim(ticket(2, 1), Access::Write, &(4..8), false, &mut displaced);
        assert_eq!(displaced.as_slice(), [(ticket(1, 1), Access::Write)]);
        assert!(is_shared(&accesses));
        assert_eq!(accesses.last_uses().as_slice(), [ticket(1, 1), ticket(2, 1)]);
    }

    #[test]
    fn refused_write_restores_displaced_accesses() {
        let accesses = Accesses::written(ticket(1, 1));
        let displaced = claim(&accesses, ticket(2, 1), Access::Write);
        accesses.retract(ticket(2, 1));
        accesses.restore(&(0..8), &displaced);
        assert_eq!(claim(&accesses, ticket(3, 1), Access::Read), [(ticket(1, 1), Access::Write)]);
    }
}

#[cfg(all(test, not(loom)))]
mod poison_tests {
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
