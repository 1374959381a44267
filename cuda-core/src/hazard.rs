//! Who waits for whom. Knows no device: it is given accesses and says which tickets come first.
//!
//! Every stream counts its submissions; a [`Ticket`] is a stream and a number. An allocation keeps its
//! last write and, per stream, its last read since. A read waits for the write, a write for both;
//! what is on the same stream is ordered anyway. A write collapses everything before it.

use smallvec::SmallVec;

use crate::StreamId;

/// The `number`-th submission of a stream. A ticket is complete when everything up to it has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The stream.
    pub stream: StreamId,
    /// Counted from 1.
    pub number: u64,
}

/// What a submission does to an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads it, perhaps beside other readers.
    Read,
    /// Writes it, or both.
    Write,
}

/// Streams whose last reads an allocation remembers. One more reader waits for the oldest of them and
/// takes its place: an edge too many, never one too few. (Readers that come at the very same time are all
/// remembered, and made up for by the next.)
pub const MAX_READERS: usize = 8;

/// Tickets to wait for.
pub(crate) type Tickets = SmallVec<[Ticket; 2]>;

/// The last uses of one allocation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    writer: Option<Ticket>,
    readers: Tickets,
}

impl Usage {
    /// What a submission on `stream` has to wait for before it makes this access.
    pub(crate) fn waits(&self, stream: StreamId, access: Access) -> Tickets {
        let elsewhere = |ticket: &Ticket| ticket.stream != stream;
        let mut waits = Tickets::new();
        waits.extend(self.writer.filter(elsewhere));
        let readers = match access {
            Access::Write => &self.readers[..],
            Access::Read => self.displaced_by(stream),
        };
        waits.extend(readers.iter().copied().filter(elsewhere));
        waits
    }

    /// Notes an access that comes after everything in `waited`, and forgets what it therefore stands for.
    ///
    /// Another thread may have noted accesses since [`Usage::waits`] was asked: those are in neither list, and
    /// stay. (Between a write and anything else that is what its caller promises cannot happen; it is
    /// kept in order all the same.)
    pub(crate) fn note(&mut self, ticket: Ticket, access: Access, waited: &[Ticket]) {
        let before = |earlier: &Ticket| earlier.stream == ticket.stream || waited.contains(earlier);
        self.readers.retain(|read| !before(read));
        match access {
            Access::Write => {
                self.readers.extend(self.writer.filter(|writer| !before(writer)));
                self.writer = Some(ticket);
            }
            Access::Read => self.readers.push(ticket),
        }
    }

    /// Every ticket that has to be complete before the memory can go.
    pub(crate) fn last_uses(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.writer.into_iter().chain(self.readers.iter().copied())
    }

    /// The readers that a read on `stream` takes the place of: none while there is room.
    fn displaced_by(&self, stream: StreamId) -> &[Ticket] {
        let known = self.readers.iter().any(|read| read.stream == stream);
        let surplus = (self.readers.len() + 1).saturating_sub(MAX_READERS);
        if known { &[] } else { &self.readers[..surplus] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(stream: u64, number: u64) -> Ticket {
        Ticket { stream: StreamId(stream), number }
    }

    #[test]
    fn a_read_waits_for_the_write_on_another_stream_only() {
        let mut usage = Usage::default();
        usage.note(ticket(1, 1), Access::Write, &[]);
        assert_eq!(usage.waits(StreamId(2), Access::Read).as_slice(), [ticket(1, 1)]);
        assert!(usage.waits(StreamId(1), Access::Read).is_empty());
    }

    #[test]
    fn a_write_waits_for_every_reader_and_then_stands_for_them() {
        let mut usage = Usage::default();
        usage.note(ticket(1, 1), Access::Write, &[]);
        usage.note(ticket(2, 5), Access::Read, &[ticket(1, 1)]);
        usage.note(ticket(3, 7), Access::Read, &[ticket(1, 1)]);
        usage.note(ticket(2, 6), Access::Read, &[]);
        let waits = usage.waits(StreamId(4), Access::Write);
        assert_eq!(waits.as_slice(), [ticket(1, 1), ticket(3, 7), ticket(2, 6)]);
        usage.note(ticket(4, 1), Access::Write, &waits);
        assert_eq!(usage.waits(StreamId(2), Access::Read).as_slice(), [ticket(4, 1)]);
    }

    #[test]
    fn one_reader_too_many_waits_for_the_oldest() {
        let mut usage = Usage::default();
        for stream in 0..MAX_READERS as u64 {
            assert!(usage.waits(StreamId(stream), Access::Read).is_empty());
            usage.note(ticket(stream, 1), Access::Read, &[]);
        }
        let late = StreamId(99);
        let waits = usage.waits(late, Access::Read);
        assert_eq!(waits.as_slice(), [ticket(0, 1)]);
        usage.note(Ticket { stream: late, number: 1 }, Access::Read, &waits);
        assert_eq!(usage.last_uses().count(), MAX_READERS);
        assert!(!usage.last_uses().any(|t| t.stream == StreamId(0)));
    }

    /// Two threads that both wait for the oldest reader do not push out a second one, for which nobody waits.
    #[test]
    fn readers_that_come_at_once_are_all_remembered() {
        let mut usage = Usage::default();
        for stream in 0..MAX_READERS as u64 {
            usage.note(ticket(stream, 1), Access::Read, &[]);
        }
        let (a, b) = (ticket(50, 1), ticket(51, 1));
        let (a_waits, b_waits) =
            (usage.waits(a.stream, Access::Read), usage.waits(b.stream, Access::Read));
        usage.note(a, Access::Read, &a_waits);
        usage.note(b, Access::Read, &b_waits);
        let uses: Vec<_> = usage.last_uses().collect();
        assert!((1..MAX_READERS as u64).all(|stream| uses.contains(&ticket(stream, 1))));
        assert!(uses.contains(&a) && uses.contains(&b));
        let next = usage.waits(StreamId(52), Access::Read);
        assert_eq!(next.as_slice(), [ticket(1, 1), ticket(2, 1)]);
        usage.note(ticket(52, 1), Access::Read, &next);
        assert_eq!(usage.last_uses().count(), MAX_READERS);
    }

    /// A write at the end waits, directly or through others, for every earlier access: checked by
    /// following edges through random programs.
    #[test]
    fn every_access_before_a_write_is_ordered_before_it() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move |n: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % n
        };
        for _ in 0..300 {
            let (mut usage, mut log) = (Usage::default(), Vec::<(Ticket, Access, Tickets)>::new());
            let mut counts = [0u64; 12];
            for _ in 0..40 {
                let stream = next(12);
                let access = if next(4) == 0 { Access::Write } else { Access::Read };
                counts[stream as usize] += 1;
                let this = ticket(stream, counts[stream as usize]);
                let waits = usage.waits(this.stream, access);
                usage.note(this, access, &waits);
                assert_ordered(&log, this, access, &waits);
                log.push((this, access, waits));
            }
        }
    }

    fn assert_ordered(
        log: &[(Ticket, Access, Tickets)],
        this: Ticket,
        access: Access,
        waits: &Tickets,
    ) {
        // Everything known to be before `this`: its own stream, and what its waits are after.
        let mut before = [0u64; 12];
        before[this.stream.0 as usize] = this.number - 1;
        waits
            .iter()
            .for_each(|w| before[w.stream.0 as usize] = w.number.max(before[w.stream.0 as usize]));
        for (earlier, _, their_waits) in log.iter().rev() {
            if earlier.number <= before[earlier.stream.0 as usize] {
                for w in their_waits {
                    let known = &mut before[w.stream.0 as usize];
                    *known = (*known).max(w.number);
                }
            }
        }
        for (earlier, kind, _) in log {
            if access == Access::Write || *kind == Access::Write {
                assert!(
                    earlier.number <= before[earlier.stream.0 as usize],
                    "{earlier:?} unordered"
                );
            }
        }
    }
}
