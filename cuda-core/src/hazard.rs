//! Who waits for whom. Knows no device: it is given accesses and says which tickets come first.
//!
//! Every stream counts its submissions; a [`Ticket`] is a stream and a number. An allocation keeps its
//! last write and, per stream, its last read since. A read waits for the write, a write for both;
//! what is on the same stream is ordered anyway. A write collapses everything before it.

use smallvec::SmallVec;

use crate::{StreamId, sync::limit};

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
/// takes its place: an edge too many, never one too few. (Readers that could not be waited for are
/// remembered beyond that, and made up for by the next.)
pub const MAX_READERS: usize = limit(8, 1);

/// Tickets to wait for.
pub(crate) type Tickets = SmallVec<[Ticket; 2]>;

/// The last uses of one allocation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    writer: Option<Ticket>,
    readers: Tickets,
}

impl Usage {
    /// That of memory which `ticket` has just made: for what comes next, a write.
    pub(crate) fn written(ticket: Ticket) -> Self {
        Self { writer: Some(ticket), readers: Tickets::new() }
    }

    /// Notes the access that `ticket` is about to make, and adds to `waits` what it has to wait for.
    ///
    /// From here on it stands for what it waits for. So whoever cannot wait gives it [back](Usage::keep).
    #[inline]
    pub(crate) fn claim(&mut self, ticket: Ticket, access: Access, waits: &mut Tickets) {
        let elsewhere = |other: &Ticket| other.stream != ticket.stream;
        if let Some(writer) = self.writer.filter(elsewhere) {
            waits.push(writer);
        }
        match access {
            Access::Write => {
                if !self.readers.is_empty() {
                    waits.extend(self.readers.drain(..).filter(elsewhere));
                }
                self.writer = Some(ticket);
            }
            Access::Read => self.claim_read(ticket, waits),
        }
    }

    fn claim_read(&mut self, ticket: Ticket, waits: &mut Tickets) {
        self.readers.retain(|read| read.stream != ticket.stream);
        let surplus = (self.readers.len() + 1).saturating_sub(MAX_READERS);
        waits.extend(self.readers.drain(..surplus));
        self.readers.push(ticket);
    }

    /// Takes back a ticket that somebody claimed to stand for and could not wait for.
    #[cold]
    pub(crate) fn keep(&mut self, ticket: Ticket) {
        match self.readers.iter_mut().find(|read| read.stream == ticket.stream) {
            Some(known) => known.number = known.number.max(ticket.number),
            None => self.readers.push(ticket),
        }
    }

    /// Every ticket that has to be complete before the memory can go.
    pub(crate) fn last_uses(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.writer.into_iter().chain(self.readers.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(stream: u64, number: u64) -> Ticket {
        Ticket { stream: StreamId(stream), number }
    }

    fn claim(usage: &mut Usage, ticket: Ticket, access: Access) -> Tickets {
        let mut waits = Tickets::new();
        usage.claim(ticket, access, &mut waits);
        waits
    }

    #[test]
    fn a_read_waits_for_the_write_on_another_stream_only() {
        let mut usage = Usage::written(ticket(1, 1));
        assert_eq!(claim(&mut usage, ticket(2, 1), Access::Read).as_slice(), [ticket(1, 1)]);
        assert!(claim(&mut usage, ticket(1, 2), Access::Read).is_empty());
    }

    #[test]
    fn a_write_waits_for_every_reader_and_then_stands_for_them() {
        let mut usage = Usage::written(ticket(1, 1));
        for read in [ticket(2, 5), ticket(3, 7), ticket(2, 6)] {
            assert_eq!(claim(&mut usage, read, Access::Read).as_slice(), [ticket(1, 1)]);
        }
        let waits = claim(&mut usage, ticket(4, 1), Access::Write);
        assert_eq!(waits.as_slice(), [ticket(1, 1), ticket(3, 7), ticket(2, 6)]);
        assert_eq!(claim(&mut usage, ticket(2, 7), Access::Read).as_slice(), [ticket(4, 1)]);
    }

    #[test]
    fn one_reader_too_many_waits_for_the_oldest() {
        let mut usage = Usage::default();
        for stream in 0..MAX_READERS as u64 {
            assert!(claim(&mut usage, ticket(stream, 1), Access::Read).is_empty());
        }
        let waits = claim(&mut usage, ticket(99, 1), Access::Read);
        assert_eq!(waits.as_slice(), [ticket(0, 1)]);
        assert_eq!(usage.last_uses().count(), MAX_READERS);
        assert!(!usage.last_uses().any(|t| t.stream == StreamId(0)));
    }

    #[test]
    fn what_could_not_be_waited_for_is_kept_and_made_up_for() {
        let mut usage = Usage::default();
        for stream in 0..=MAX_READERS as u64 {
            claim(&mut usage, ticket(stream, 1), Access::Read);
        }
        usage.keep(ticket(0, 1));
        let waits = claim(&mut usage, ticket(50, 1), Access::Read);
        assert_eq!(waits.as_slice(), [ticket(1, 1), ticket(2, 1)]);
        assert_eq!(usage.last_uses().count(), MAX_READERS);
        assert!(claim(&mut usage, ticket(51, 1), Access::Write).contains(&ticket(0, 1)));
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
                let waits = claim(&mut usage, this, access);
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
