//! One direction of a relay: decides which datagrams leave, and when. Uses no socket and no clock.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    time::{Duration, Instant},
};

use quinn_udp::EcnCodepoint;

use crate::options::Impairment;

/// The limit of each configured delay. It keeps the sums of times in range.
const LONGEST_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounters {
    /// Datagrams that came in.
    pub received: u64,
    /// Bytes that came in.
    pub received_bytes: u64,
    /// Datagrams that went out, copies included.
    pub forwarded: u64,
    /// Bytes that went out.
    pub forwarded_bytes: u64,
    /// Datagrams that were lost by chance.
    pub lost: u64,
    /// Datagrams that a partition dropped.
    pub partitioned: u64,
    /// Copies that were made.
    pub duplicated: u64,
    /// Datagrams that were chosen to be overtaken.
    pub reordered: u64,
    /// Datagrams that were dropped because too many bytes were in flight, or too many clients were known.
    pub overflowed: u64,
    /// Datagrams that the operating system did not send.
    pub unsent: u64,
}

/// Datagrams of equal size, except for the last one, from or to one client.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    /// The index of the client.
    pub(crate) client: usize,
    pub(crate) contents: &'a [u8],
    /// The size of each datagram. At least 1.
    pub(crate) segment: usize,
    pub(crate) ecn: Option<EcnCodepoint>,
}

impl<'a> Batch<'a> {
    /// The number of datagrams. Empty contents are one datagram.
    pub(crate) fn datagrams(&self) -> u64 {
        self.contents.len().div_ceil(self.segment).max(1) as u64
    }

    /// Batches of at most this number of datagrams.
    pub(crate) fn split(self, datagrams: usize) -> impl Iterator<Item = Batch<'a>> {
        let size = self.segment.saturating_mul(datagrams.max(1));
        let empty = self.contents.is_empty().then_some(self.contents);
        let parts = empty.into_iter().chain(self.contents.chunks(size));
        parts.map(move |contents| Batch { contents, ..self })
    }
}

/// A batch in flight.
pub(crate) struct InFlight {
    due: Instant,
    /// Orders batches that are due at the same time.
    number: u64,
    client: usize,
    contents: Box<[u8]>,
    segment: usize,
    ecn: Option<EcnCodepoint>,
}

impl InFlight {
    pub(crate) fn batch(&self) -> Batch<'_> {
        let Self { client, ref contents, segment, ecn, .. } = *self;
        Batch { client, contents, segment, ecn }
    }
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for InFlight {}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

/// One direction.
pub(crate) struct Link {
    impairment: Impairment,
    random: fastrand::Rng,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    bytes_in_flight: usize,
    next_number: u64,
    /// The time at which the last datagram has left the sender, if there is a bandwidth.
    busy_until: Option<Instant>,
    /// The latest time at which a datagram that keeps its place is due.
    last_due: Option<Instant>,
    pub(crate) counters: DirectionCounters,
}

impl Link {
    pub(crate) fn new(impairment: Impairment, seed: u64) -> Self {
        Self {
            impairment: limited(impairment),
            random: fastrand::Rng::with_seed(seed),
            in_flight: BinaryHeap::new(),
            bytes_in_flight: 0,
            next_number: 0,
            busy_until: None,
            last_due: None,
            counters: DirectionCounters::default(),
        }
    }

    /// Replaces the faults. They apply to datagrams that arrive later, except that a partition drops those in flight.
    pub(crate) fn configure(&mut self, impairment: Impairment) {
        self.impairment = limited(impairment);
        if self.impairment.partitioned {
            let dropped = self.in_flight.drain();
            self.counters.partitioned +=
                dropped.map(|Reverse(entry)| entry.batch().datagrams()).sum::<u64>();
            self.bytes_in_flight = 0;
        }
    }

    /// Starts a new sequence of random decisions.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.random.seed(seed);
    }

    /// Takes a batch that arrived. True if the caller shall send it immediately; otherwise the batch is in flight or
    /// was dropped.
    pub(crate) fn arrive(&mut self, batch: Batch<'_>, now: Instant) -> bool {
        self.counters.received += batch.datagrams();
        self.counters.received_bytes += batch.contents.len() as u64;
        if self.impairment.partitioned {
            self.counters.partitioned += batch.datagrams();
            return false;
        }
        if !self.impairment.splits_batches() {
            let due = self.in_order(now + self.impairment.delay);
            if due <= now && self.in_flight.is_empty() {
                return true;
            }
            if !self.overflows(batch) {
                self.push(batch, due);
            }
            return false;
        }
        for datagram in batch.split(1) {
            self.arrive_alone(datagram, now);
        }
        false
    }

    fn arrive_alone(&mut self, datagram: Batch<'_>, now: Instant) {
        if self.chance(self.impairment.loss) {
            self.counters.lost += 1;
            return;
        }
        let copies = if self.chance(self.impairment.duplicate) { 2 } else { 1 };
        self.counters.duplicated += copies - 1;
        for _ in 0..copies {
            if self.overflows(datagram) {
                continue;
            }
            let sent = self.leave_sender(datagram.contents.len(), now);
            let arrives = sent + self.impairment.delay + self.jitter();
            if self.chance(self.impairment.reorder) {
                self.counters.reordered += 1;
                let first = self.last_due.map_or(arrives, |last| last.max(arrives));
                self.push(datagram, first + self.impairment.reorder_delay);
            } else {
                let due = self.in_order(arrives);
                self.push(datagram, due);
            }
        }
    }

    /// The time at which the last byte has left the sender.
    fn leave_sender(&mut self, bytes: usize, now: Instant) -> Instant {
        let Some(rate) = self.impairment.bytes_per_second else { return now };
        let starts = self.busy_until.map_or(now, |busy| busy.max(now));
        let takes = (bytes as u64).saturating_mul(1_000_000_000) / rate.max(1);
        let ends = starts + Duration::from_nanos(takes);
        self.busy_until = Some(ends);
        ends
    }

    fn jitter(&mut self) -> Duration {
        let limit = u64::try_from(self.impairment.jitter.as_nanos()).unwrap_or(u64::MAX);
        if limit == 0 { Duration::ZERO } else { Duration::from_nanos(self.random.u64(0..=limit)) }
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.f64() < probability
    }

    /// The time, or that of the datagram before if it is later.
    fn in_order(&mut self, due: Instant) -> Instant {
        let due = self.last_due.map_or(due, |last| last.max(due));
        self.last_due = Some(due);
        due
    }

    /// True if the batch does not fit into the bytes in flight. It is then counted as dropped.
    fn overflows(&mut self, batch: Batch<'_>) -> bool {
        let bytes = self.bytes_in_flight.saturating_add(batch.contents.len());
        let overflows = bytes > self.impairment.queue_bytes;
        self.counters.overflowed += if overflows { batch.datagrams() } else { 0 };
        overflows
    }

    fn push(&mut self, batch: Batch<'_>, due: Instant) {
        let Batch { client, contents, segment, ecn } = batch;
        self.bytes_in_flight += contents.len();
        let number = self.next_number;
        self.next_number += 1;
        let contents = contents.into();
        self.in_flight.push(Reverse(InFlight { due, number, client, contents, segment, ecn }));
    }

    /// Removes and returns the next batch that is due, in order.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<InFlight> {
        let first = self.in_flight.peek_mut()?;
        if first.0.due > now {
            return None;
        }
        let Reverse(entry) = PeekMut::pop(first);
        self.bytes_in_flight -= entry.contents.len();
        Some(entry)
    }

    /// The time at which the next batch is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse(entry)| entry.due)
    }

    /// Counts a batch that was sent, or that the operating system refused.
    pub(crate) fn left(&mut self, datagrams: u64, bytes: usize, sent: bool) {
        if sent {
            self.counters.forwarded += datagrams;
            self.counters.forwarded_bytes += bytes as u64;
        } else {
            self.counters.unsent += datagrams;
        }
    }
}

fn limited(mut impairment: Impairment) -> Impairment {
    let Impairment { delay, jitter, reorder_delay, .. } = &mut impairment;
    for time in [delay, jitter, reorder_delay] {
        *time = (*time).min(LONGEST_DELAY);
    }
    impairment
}

#[cfg(test)]
mod tests;
