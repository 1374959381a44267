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

use std::ops::Range;

use smallvec::SmallVec;

use super::position::Position;
use crate::{
    protocol::{Access, Error, Result, StreamId, Ticket},
    sync::limit,
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
    let detail = format!(
        "it would have more than {MAX_PIECES} pieces, which is the limit; write the whole buffer at once to join them"
    );
    Error::OutOfRange { what: "splitting a buffer".into(), detail }
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
        let histories = std::iter::once(&self.first).chain(self.rest.iter().map(|(_, it)| it));
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
