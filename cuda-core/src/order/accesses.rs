//! The accesses of an allocation: three numbers while one stream alone uses it, and histories under a lock otherwise.
//!
//! # Rules
//! - `read` selects the valid form. Unless it is [`SHARED`], one stream alone has used the memory since it was last
//!   written whole: the numbers `stream`, `written` and `read` are its history, and `pieces` is stale. If it is
//!   `SHARED`, only `pieces` is valid.
//! - A write that needs no lock has exclusive access to the memory, as `&mut` has. While the numbers are valid there is
//!   one piece, so no other thread claims or splits anything until the write is claimed. Loads and stores suffice. A
//!   replay of a recording has no exclusive access, and neither has a foreign call, nor a launch that writes a variable of
//!   its module. So accesses to such memory take the lock ([`Accesses::claim_locked`]). Under it they use the numbers while these are
//!   valid.
//! - Reads come from several threads. A read on the stream that `stream` names replaces `read`, by compare-and-swap. It
//!   changes neither `stream` nor `written`, so they stay as the last write left them.
//! - The lock is taken before `read` becomes `SHARED`. A read that replaced `read` before that is in the histories. A
//!   later one fails to replace it, and waits for the lock.
//! - Only a write of the whole allocation ends `SHARED`.

use std::ops::Range;

use smallvec::SmallVec;

use super::history::{Displaced, Pieces};
use crate::{
    protocol::{Access, Result, StreamId, Ticket},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

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

    /// Records an access in the numbers, if they are valid and name the stream of `ticket`. Returns whether it did. Such an
    /// access displaces nothing.
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

    /// As [`claim`](Self::claim), with the lock. For a write whose caller has no exclusive access to the memory. No other
    /// thread claims a write without the lock: such a caller holds the turn of the allocation, or shares a borrow of it.
    /// The numbers stay valid here. The lock excludes splits. The caller's order lock excludes other reads on the stream that
    /// the numbers name.
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

#[cfg(all(test, not(loom)))]
mod tests {
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
