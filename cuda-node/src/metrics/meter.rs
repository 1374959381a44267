//! Counts the traffic of leases and of their node, and the connections, submits and latencies of the node. The lease
//! table counts the rest.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use cuda_core::{Error, protocol::Notice};
use cuda_lease::wire::{Chunk, Command, Event, Frame, Status, Step, opcode};
use parking_lot::Mutex;

use super::Histogram;

/// The kinds of operations that are counted.
pub const OPERATIONS: [&str; 8] =
    ["launch", "write", "read", "copy", "fill", "join", "timestamp", "allocate"];

/// The bytes of a chunk in front of its data.
const CHUNK_HEADER: usize = 16;

/// The index in [`OPERATIONS`] of a command.
#[inline]
fn kind(code: u16) -> Option<usize> {
    Some(match code {
        opcode::LAUNCH | opcode::LAUNCH_WITH | opcode::GRAPH_LAUNCH => 0,
        opcode::MEM_WRITE | opcode::MEM_WRITE_BULK => 1,
        opcode::MEM_READ => 2,
        opcode::MEM_COPY => 3,
        opcode::MEM_FILL => 4,
        opcode::JOIN => 5,
        opcode::TIMESTAMP => 6,
        opcode::MEM_ALLOC | opcode::MEM_ALLOC_IN => 7,
        _ => return None,
    })
}

/// The frames of a batch, counted without atomic operations.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    operations: [u64; OPERATIONS.len()],
    uploaded: u64,
}

impl Tally {
    /// Counts a frame of a client.
    #[inline]
    pub fn add(&mut self, frame: &Frame<'_>) {
        if let Some(kind) = kind(frame.header.opcode) {
            self.operations[kind] += 1;
        }
        match frame.header.opcode {
            Chunk::OPCODE => self.uploaded += data_bytes(frame),
            opcode::MEM_WRITE => {
                if let Ok(Command::Submit { step: Step::Write { bytes, .. }, .. }) =
                    Command::decode(frame.header.opcode, frame.body)
                {
                    self.uploaded += bytes.len() as u64;
                }
            }
            _ => {}
        }
    }
}

/// The data bytes of a [`Chunk`].
fn data_bytes(frame: &Frame<'_>) -> u64 {
    frame.body.len().saturating_sub(CHUNK_HEADER) as u64
}

/// Totals of a lease, or of all leases of a node.
#[derive(Debug, Default)]
pub struct Traffic {
    operations: [AtomicU64; OPERATIONS.len()],
    failed: AtomicU64,
    faults: AtomicU64,
    uploaded: AtomicU64,
    output: AtomicU64,
}

impl Traffic {
    /// Returns the operations that were passed to workers, in the order of [`OPERATIONS`].
    pub fn operations(&self) -> [u64; OPERATIONS.len()] {
        std::array::from_fn(|kind| self.operations[kind].load(Relaxed))
    }

    /// Returns the operations that failed or were skipped.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Returns the faults of kernels.
    pub fn faults(&self) -> u64 {
        self.faults.load(Relaxed)
    }

    /// Returns the bytes of uploads.
    pub fn uploaded(&self) -> u64 {
        self.uploaded.load(Relaxed)
    }

    /// Returns the bytes of downloads and of outputs of stateless submits.
    pub fn output(&self) -> u64 {
        self.output.load(Relaxed)
    }
}

/// Counts the traffic of one lease, for the lease and for its node.
#[derive(Debug)]
pub struct Meter {
    /// The metrics of the node.
    pub node: Arc<NodeMetrics>,
    lease: Traffic,
    memory: AtomicU64,
    backlog: AtomicU64,
    backlog_bytes: AtomicU64,
    since: Instant,
    /// The operations of its session whose times its worker has reported: those in the queue, and those on the device.
    timed: Mutex<[u64; 2]>,
}

impl Meter {
    /// Creates the meter of a lease.
    pub fn new(node: Arc<NodeMetrics>) -> Self {
        let (lease, memory, backlog, backlog_bytes, timed) = Default::default();
        Self { node, lease, memory, backlog, backlog_bytes, since: Instant::now(), timed }
    }

    /// Returns the totals of the lease.
    pub fn lease(&self) -> &Traffic {
        &self.lease
    }

    fn add(&self, bytes: u64, counter: impl Fn(&Traffic) -> &AtomicU64) {
        if bytes > 0 {
            counter(&self.lease).fetch_add(bytes, Relaxed);
            counter(&self.node.traffic).fetch_add(bytes, Relaxed);
        }
    }

    /// Counts frames of the client that were passed to the worker.
    #[inline]
    pub fn passed(&self, tally: &Tally) {
        for (kind, count) in tally.operations.into_iter().enumerate() {
            self.add(count, |counters| &counters.operations[kind]);
        }
        self.uploaded(tally.uploaded);
    }

    /// Counts a frame of the worker.
    #[inline]
    pub fn returned(&self, frame: &Frame<'_>) {
        match frame.header.opcode {
            Chunk::OPCODE => self.output(data_bytes(frame)),
            opcode::FAILED => self.add(1, |counters| &counters.failed),
            opcode::FAULTED => self.add(1, |counters| &counters.faults),
            opcode::LOST if is_fault(frame) => {
                self.add(1, |counters| &counters.faults);
                // No event names the operation that faulted.
                self.add(1, |counters| &counters.failed);
            }
            _ => {}
        }
    }

    /// Adds times of the session, as its worker has measured them. Drops times that cannot be true, because a hostile
    /// worker would hide those of all other leases: more than the operations that were passed to it, or longer than this
    /// meter exists. Times of operations that an earlier node has passed may be dropped too.
    pub fn measured(&self, queue: &Histogram, device: &Histogram) {
        let (times, mut timed) = ([queue, device], self.timed.lock());
        let of_all = [0, 1].map(|part| timed[part].saturating_add(times[part].count()));
        let passed = self.lease.operations().iter().sum();
        let longest = self.since.elapsed();
        if of_all.into_iter().all(|count| count <= passed)
            && times.into_iter().all(|times| times.is_within(longest))
        {
            *timed = of_all;
            self.node.merge(queue, device);
        }
    }

    /// Counts bytes from the client.
    pub fn uploaded(&self, bytes: u64) {
        self.add(bytes, |counters| &counters.uploaded);
    }

    /// Counts bytes to the client.
    pub fn output(&self, bytes: u64) {
        self.add(bytes, |counters| &counters.output);
    }

    /// Sets the device memory that the lease uses, in bytes.
    pub fn set_memory(&self, bytes: u64) {
        self.memory.store(bytes, Relaxed);
    }

    /// Returns the device memory that the lease used at the last report of its worker, in bytes.
    pub fn memory(&self) -> u64 {
        self.memory.load(Relaxed)
    }
}

impl Meter {
    /// Sets the submissions of the lease that are not known to be complete, and the host memory that its worker holds for
    /// them, in bytes.
    pub fn set_backlog(&self, submissions: u64, bytes: u64) {
        self.backlog.store(submissions, Relaxed);
        self.backlog_bytes.store(bytes, Relaxed);
    }

    /// Returns the values that were set last: the submissions, and the bytes.
    pub fn backlog(&self) -> (u64, u64) {
        (self.backlog.load(Relaxed), self.backlog_bytes.load(Relaxed))
    }
}

/// Whether a session is lost because of a fault. A GPU reports a fault in this way; the CPU device goes on.
fn is_fault(lost: &Frame<'_>) -> bool {
    matches!(
        Event::decode(lost.header.opcode, lost.body),
        Ok(Event::Notice(Notice::Lost { error: Error::Fault(_) }))
    )
}

/// The times of one way to run work. Three parts of the time between a request and its reply.
#[derive(Debug, Default, Clone, Copy)]
pub struct Path {
    /// From the arrival of an operation to its submission on the device.
    pub queue: Histogram,
    /// On the network.
    pub wire: Histogram,
    /// From the submission to the completion.
    pub device: Histogram,
}

/// The latencies of a node.
#[derive(Debug, Default, Clone, Copy)]
pub struct Latencies {
    /// From a request for a lease to its grant. Requests that were refused do not count.
    pub admission: Histogram,
    /// Operations of sessions. `wire` is the round trip that QUIC measures.
    pub session: Path,
    /// Stateless submits. `wire` is the time from the reply to its acknowledgement.
    pub submit: Path,
}

/// The metrics of a node.
#[derive(Debug, Default)]
pub struct NodeMetrics {
    traffic: Traffic,
    accepted: AtomicU64,
    closed: AtomicU64,
    resumed: AtomicU64,
    submits: Mutex<BTreeMap<Status, u64>>,
    latencies: Mutex<Latencies>,
}

/// A connection, counted until this value is dropped.
#[derive(Debug)]
pub struct Connected(Arc<NodeMetrics>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Relaxed);
    }
}

impl NodeMetrics {
    /// Returns the totals of all leases.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Counts a connection until the returned value is dropped.
    #[must_use]
    pub fn connected(self: &Arc<Self>) -> Connected {
        self.accepted.fetch_add(1, Relaxed);
        Connected(self.clone())
    }

    /// Returns the number of all connections so far, and of those that are open.
    pub fn connections(&self) -> (u64, u64) {
        // In this order, because a connection is accepted before it is closed.
        let closed = self.closed.load(Relaxed);
        let accepted = self.accepted.load(Relaxed);
        (accepted, accepted.saturating_sub(closed))
    }

    /// Counts a session that a new connection resumed.
    pub fn resumed(&self) {
        self.resumed.fetch_add(1, Relaxed);
    }

    /// Returns the number of sessions that new connections resumed.
    pub fn resumptions(&self) -> u64 {
        self.resumed.load(Relaxed)
    }

    /// Counts a stateless submit.
    pub fn submitted(&self, status: Status) {
        *self.submits.lock().entry(status).or_default() += 1;
    }

    /// Returns the number of stateless submits by status.
    pub fn submits(&self) -> BTreeMap<Status, u64> {
        self.submits.lock().clone()
    }

    /// Adds a time to the histogram that `of` chooses.
    pub fn record(&self, time: Duration, of: impl FnOnce(&mut Latencies) -> &mut Histogram) {
        of(&mut self.latencies.lock()).record(time);
    }

    /// Adds the times of a session.
    fn merge(&self, queue: &Histogram, device: &Histogram) {
        let mut latencies = self.latencies.lock();
        latencies.session.queue.merge(queue);
        latencies.session.device.merge(device);
    }

    /// Returns the latencies.
    pub fn latencies(&self) -> Latencies {
        *self.latencies.lock()
    }
}

#[cfg(test)]
mod tests {
    use cuda_core::{
        Fault, FaultKind, Ticket,
        protocol::{AllocId, Region, StreamId, Work},
    };
    use cuda_lease::wire::{TransferId, frames_in, put_frame};

    use super::*;

    #[test]
    fn bytes_and_operations_count_for_the_lease_and_its_node() {
        let mut frames = Vec::new();
        let ticket = Ticket { stream: StreamId(1), number: 1 };
        let region = Region { alloc: AllocId(1), offset: 0 };
        let write = Step::Write { to: region, bytes: b"abc" };
        for step in [Step::Work(Work::Join), write, Step::Work(Work::Join)] {
            let command = Command::Submit { ticket, after: vec![ticket], step };
            put_frame(&mut frames, command.opcode().unwrap(), 1, 1, |out| command.encode(out));
        }
        let chunk = Chunk { transfer: TransferId(1), offset: 0, bytes: &[0; 100] };
        put_frame(&mut frames, Chunk::OPCODE, 1, 1, |out| chunk.encode(out));
        let mut tally = Tally::default();
        frames_in(&frames).for_each(|frame| tally.add(&frame));

        let node = Arc::new(NodeMetrics::default());
        let (one, two) = (Meter::new(node.clone()), Meter::new(node.clone()));
        one.passed(&tally);
        two.passed(&tally);
        frames_in(&frames).for_each(|frame| two.returned(&frame));
        assert_eq!(one.lease().operations(), [0, 1, 0, 0, 0, 2, 0, 0]);
        assert_eq!(node.traffic.operations(), [0, 2, 0, 0, 0, 4, 0, 0]);
        assert_eq!((one.lease().uploaded(), node.traffic.uploaded()), (103, 206));
        assert_eq!((one.lease().output(), two.lease().output()), (0, 100));
    }

    /// Otherwise one report of a hostile worker hides the times of all other leases.
    #[test]
    fn times_that_cannot_be_true_are_dropped() {
        let meter = Meter::new(Arc::default());
        let mut tally = Tally::default();
        tally.operations[0] = 2;
        meter.passed(&tally);
        let of = |times: &[Duration]| {
            let mut histogram = Histogram::default();
            times.iter().for_each(|time| histogram.record(*time));
            histogram
        };
        let (none, short) = (of(&[]), Duration::from_nanos(1));
        let counts = || {
            let session = meter.node.latencies().session;
            (session.queue.count(), session.device.count())
        };
        meter.measured(&of(&[short]), &none);
        assert_eq!(counts(), (1, 0));
        for (queue, device) in
            [(of(&[short; 2]), none), (none, of(&[short; 3])), (none, of(&[Duration::MAX]))]
        {
            meter.measured(&queue, &device);
            assert_eq!(counts(), (1, 0));
        }
        meter.measured(&of(&[short]), &of(&[short; 2]));
        assert_eq!(counts(), (2, 2));
    }

    #[test]
    fn fault_counts_whether_the_device_goes_on_or_is_lost() {
        let fault = || Error::from(Fault::new(FaultKind::Trap, "a trap"));
        let other = Error::OutOfHostMemory { requested: 1 };
        let events = [
            Event::Notice(Notice::Faulted { error: fault() }),
            Event::Notice(Notice::Lost { error: fault() }),
            Event::Notice(Notice::Lost { error: other }),
        ];
        let mut frames = Vec::new();
        for event in events {
            put_frame(&mut frames, event.opcode(), 0, 0, |out| event.encode(out));
        }
        let meter = Meter::new(Arc::default());
        frames_in(&frames).for_each(|frame| meter.returned(&frame));
        assert_eq!((meter.lease().faults(), meter.node.traffic.faults()), (2, 2));
        assert_eq!(meter.lease().failed(), 1);
    }

    #[test]
    fn dropped_connection_stays_in_the_total() {
        let metrics = Arc::new(NodeMetrics::default());
        let (one, two) = (metrics.connected(), metrics.connected());
        drop(one);
        assert_eq!(metrics.connections(), (2, 1));
        drop(two);
        assert_eq!(metrics.connections(), (2, 0));
    }
}
