//! Turns notices of the backend into events for the client, in the client's numbers.
//!
//! The numbers of the backend differ from those of the client, because one copy of the client becomes several
//! submissions of the backend, and because the backend uses the number of a refused submission again.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
        mpsc::Sender,
    },
    time::Instant,
};

use cuda_core::{
    Backlog, Error, NoticeSink, Ticket,
    internals::IdMap,
    protocol::{Notice, PoolId, StreamId},
};
use cuda_lease::wire::{Chunk, TransferId};
use parking_lot::Mutex;

use super::{
    graphs::GraphMemory, outbox::Outbox, quota::Charge, staging::Staged, telemetry::Telemetry,
};

/// Downloads up to this number of bytes travel with the events. Longer ones travel on the bulk lane.
pub(super) const SMALL: u64 = 16 << 10;

/// The bytes of a download, in staging memory.
pub(super) struct StagedDownload {
    pub(super) transfer: TransferId,
    pub(super) offset: u64,
    pub(super) bytes: usize,
    pub(super) block: Staged,
    /// Whether the bytes travel with the events.
    pub(super) is_small: bool,
}

/// The reports of all streams. Locked after the state of the engine, and never while the backend is called.
pub(super) struct Reports {
    streams: Mutex<IdMap<StreamId, Stream>>,
    /// The number of frees of all streams that are not complete.
    frees: AtomicUsize,
    /// The fault since the last reset. Submissions that a lost device refuses fail with it, as those do that it skips.
    fault: Mutex<Option<Error>>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) telemetry: Telemetry,
    bulk: Sender<StagedDownload>,
    engine: OnceLock<Weak<dyn AfterProgress>>,
}

#[derive(Default)]
struct Stream {
    numbers: Numbers,
    /// The last number of the backend before the last reset. Its fault is not one of the device after the reset.
    reset_at: u64,
    /// Downloads in flight, with the backend's numbers.
    downloads: VecDeque<(u64, StagedDownload)>,
    /// Blocks that uploads in flight read.
    uploads: VecDeque<(u64, Staged)>,
    /// Host memory that launches of graphs in flight read.
    graphs: VecDeque<(u64, Arc<GraphMemory>)>,
    /// Frees that are not complete, by the backend's numbers that they come after. A client frees in any order of them.
    frees: BTreeMap<u64, Vec<Freed>>,
    /// The number of these frees.
    free_count: usize,
    /// The last number whose progress was requested for the first of them.
    wanted_free: u64,
    /// The last number whose progress was requested because it was the last one.
    wanted_last: u64,
    /// The time of the last submission, by the clock of the [`Sampler`](super::telemetry::Sampler).
    submitted_at: Option<Instant>,
    /// The submission that is timed, with the backend's number.
    timed: Option<(u64, Instant)>,
    is_retired: bool,
}

/// Memory that is in use until its free is complete.
pub(super) struct Freed {
    /// The stream of the free.
    pub(super) home: StreamId,
    pub(super) pool: PoolId,
    /// The tickets of other streams that the free comes after, with the backend's numbers.
    pub(super) after: Vec<Ticket>,
    pub(super) of_lease: Charge,
    pub(super) of_pool: Option<Charge>,
}

/// Callback for progress of the backend.
pub(super) trait AfterProgress: Send + Sync {
    /// Carries out commands that waited for progress.
    fn after_progress(&self);
}

/// Memory that a submission uses.
pub(super) enum StepMemory {
    Nothing,
    Upload(Staged),
    Download(StagedDownload),
    Graph(Arc<GraphMemory>),
}

impl Reports {
    pub(super) fn new(bulk: Sender<StagedDownload>) -> Arc<Self> {
        let (streams, frees, fault, outbox, telemetry, engine) = Default::default();
        Arc::new(Self { streams, frees, fault, outbox, telemetry, bulk, engine })
    }

    /// Sets the engine that acts on progress.
    pub(super) fn attach(&self, engine: Weak<dyn AfterProgress>) {
        _ = self.engine.set(engine);
    }

    pub(super) fn create(&self, stream: StreamId) {
        self.streams.lock().insert(stream, Stream::default());
    }

    /// The number of streams that exist, or are retired and have work that is not complete.
    pub(super) fn streams(&self) -> usize {
        self.streams.lock().len()
    }

    /// Retires a stream: it is removed when it has completed everything. Returns the number of the backend to wait for.
    pub(super) fn retire(&self, id: StreamId) -> Option<u64> {
        let mut streams = self.streams.lock();
        let stream = streams.get_mut(&id)?;
        stream.is_retired = true;
        let (backlog, taken) = (stream.numbers.backlog(), stream.numbers.taken());
        if backlog == 0 {
            streams.remove(&id);
            return None;
        }
        Some(taken)
    }

    /// Carries out commands that waited for progress of the backend or of the client.
    pub(super) fn after_progress(&self) {
        if let Some(engine) = self.engine.get().and_then(Weak::upgrade) {
            engine.after_progress();
        }
    }

    /// Begins a submission, or a part of it. Returns the backend's number.
    pub(super) fn begin(
        &self,
        client: Ticket,
        is_last: bool,
        memory: StepMemory,
        now: Instant,
    ) -> u64 {
        let mut streams = self.streams.lock();
        let stream = streams.entry(client.stream).or_default();
        let number = stream.numbers.begin(client.number, is_last);
        self.telemetry.changed(&self.outbox);
        stream.submitted_at = Some(now);
        match memory {
            StepMemory::Nothing => {}
            StepMemory::Upload(block) => stream.uploads.push_back((number, block)),
            StepMemory::Download(download) => stream.downloads.push_back((number, download)),
            StepMemory::Graph(memory) => stream.graphs.push_back((number, memory)),
        }
        number
    }

    /// Times the last submission of a stream, whose progress is requested now, unless another one is timed. Does
    /// nothing for a submission that may have completed unnoticed: one of an earlier batch, unless `is_running`.
    /// Returns `false` for such a submission. The caller then asks the backend whether it runs, and calls again with
    /// `is_running`.
    pub(super) fn time(&self, of: Ticket, now: Instant, is_running: bool) -> bool {
        let mut streams = self.streams.lock();
        let Some(stream) = streams.get_mut(&of.stream) else { return true };
        let Some(at) = stream.submitted_at else { return true };
        if stream.timed.is_some() || stream.numbers.taken() != of.number {
            return true;
        }
        if at != now && !is_running {
            return false;
        }
        stream.timed = Some((of.number, at));
        true
    }

    /// The submission that [`begin`](Self::begin) began has failed, and has no more parts. Other work takes its number, which
    /// is returned.
    pub(super) fn give_up(&self, client: Ticket, error: Error) -> u64 {
        let mut streams = self.streams.lock();
        let stream = streams.entry(client.stream).or_default();
        self.fail_begun(client, error, stream);
        stream.numbers.end();
        stream.numbers.taken()
    }

    fn fail_begun(&self, client: Ticket, error: Error, stream: &mut Stream) {
        let number = stream.numbers.taken();
        stream.timed.take_if(|(at, _)| *at == number);
        stream.downloads.retain(|(at, _)| *at != number);
        stream.uploads.retain(|(at, _)| *at != number);
        stream.graphs.retain(|(at, _)| *at != number);
        self.fail(client, error, stream);
    }

    /// Withdraws the submission that [`begin`](Self::begin) began, because the backend refused it.
    pub(super) fn refuse(&self, client: Ticket, error: Error) {
        let mut streams = self.streams.lock();
        let stream = streams.entry(client.stream).or_default();
        self.fail_begun(client, error, stream);
        let complete = stream.numbers.refuse();
        self.completed(client.stream, complete, stream);
    }

    /// A submission failed before it reached the backend.
    pub(super) fn skip(&self, client: Ticket, error: Error) {
        let mut streams = self.streams.lock();
        let stream = streams.entry(client.stream).or_default();
        stream.numbers.open(client.number);
        self.fail(client, error, stream);
        let complete = stream.numbers.skip();
        self.completed(client.stream, complete, stream);
    }

    /// Reports that a submission in flight has failed, unless that was reported for another part of it.
    fn fail(&self, client: Ticket, error: Error, stream: &mut Stream) {
        if stream.numbers.fail(client.number) {
            self.outbox.push(&Notice::Failed { ticket: client, error }.into());
        }
    }

    fn completed(&self, id: StreamId, more: bool, stream: &Stream) {
        if more {
            self.outbox.progress(id, stream.numbers.client_completed());
        }
    }

    /// The position of a client's submission.
    pub(super) fn stage(&self, client: Ticket) -> Stage {
        let streams = self.streams.lock();
        // A stream that was retired has completed everything.
        streams
            .get(&client.stream)
            .map_or(Stage::Complete, |stream| stream.numbers.backend(client.number))
    }

    /// The backend's numbers of the submissions `first..=last` of the client. `None` if they are complete or not
    /// submitted.
    pub(super) fn numbers_of(&self, id: StreamId, first: u64, last: u64) -> Option<(u64, u64)> {
        self.streams.lock().get(&id)?.numbers.range(first, last)
    }

    /// Reports the progress that is known.
    pub(super) fn report(&self, id: StreamId) {
        let streams = self.streams.lock();
        if let Some(stream) = streams.get(&id) {
            self.completed(id, true, stream);
        }
    }

    /// The number of submissions that the backend has taken and not completed, and the last one.
    pub(super) fn backlog(&self, id: StreamId) -> (u64, u64) {
        let streams = self.streams.lock();
        streams.get(&id).map_or((0, 0), |stream| (stream.numbers.backlog(), stream.numbers.taken()))
    }

    /// The number of submissions of the client that were begun and are not known to be complete.
    pub(super) fn in_flight(&self, id: StreamId) -> u64 {
        let streams = self.streams.lock();
        streams.get(&id).map_or(0, |stream| stream.numbers.in_flight.len() as u64)
    }

    /// The submissions of the client that were begun and are not known to be complete, over all streams, and the staging
    /// memory that they use.
    pub(super) fn whole_backlog(&self) -> Backlog {
        let mut backlog = Backlog::default();
        for stream in self.streams.lock().values() {
            backlog.submissions += stream.numbers.in_flight.len() as u64;
            let uploads = stream.uploads.iter().map(|(_, staged)| staged);
            let downloads = stream.downloads.iter().map(|(_, download)| &download.block);
            let bytes = uploads.chain(downloads).map(|staged| staged.block().len() as u64);
            backlog.host_bytes += bytes.sum::<u64>();
        }
        backlog
    }

    /// Whether a stream has not completed everything that the backend has taken, and the last submissions of such streams,
    /// without those that an earlier call returned.
    pub(super) fn last_submissions(&self) -> (bool, Vec<Ticket>) {
        let (mut is_busy, mut last) = (false, Vec::new());
        for (id, stream) in self.streams.lock().iter_mut() {
            let number = stream.numbers.taken();
            if stream.numbers.backlog() > 0 {
                is_busy = true;
                if std::mem::replace(&mut stream.wanted_last, number) != number {
                    last.push(Ticket { stream: *id, number });
                }
            }
        }
        (is_busy, last)
    }

    /// The streams that have not completed everything that the backend has taken.
    pub(super) fn busy_streams(&self) -> Vec<StreamId> {
        let streams = self.streams.lock();
        streams
            .iter()
            .filter(|(_, stream)| stream.numbers.backlog() > 0)
            .map(|(id, _)| *id)
            .collect()
    }

    /// Returns the root cause of a refusal.
    pub(super) fn cause(&self, error: Error) -> Error {
        match error {
            Error::DeviceLost { .. } => self.fault.lock().clone().unwrap_or(error),
            error => error,
        }
    }

    /// The device was reset.
    pub(super) fn reset(&self) {
        let mut streams = self.streams.lock();
        streams.values_mut().for_each(|stream| stream.reset_at = stream.numbers.taken());
        *self.fault.lock() = None;
    }

    /// Keeps memory until its free, which the backend has taken, is complete.
    pub(super) fn free(&self, freed: Freed) {
        let streams = &mut *self.streams.lock();
        let (stream, taken) = (freed.home, |stream: &Stream| stream.numbers.taken());
        let number = streams.get(&stream).map_or(0, taken);
        if keep(streams, Ticket { stream, number }, freed) {
            self.frees.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of frees of all streams that are not complete.
    pub(super) fn all_frees(&self) -> usize {
        self.frees.load(Ordering::Relaxed)
    }

    /// The number of frees that come after work of a stream and are not complete.
    pub(super) fn frees(&self, stream: StreamId) -> usize {
        self.streams.lock().get(&stream).map_or(0, |stream| stream.free_count)
    }

    /// The submissions of the backend that complete the first frees, without those that an earlier call returned.
    pub(super) fn first_frees(&self) -> Vec<Ticket> {
        let mut streams = self.streams.lock();
        let first = |(id, stream): (&StreamId, &mut Stream)| {
            let (&number, _) = stream.frees.first_key_value()?;
            let is_new = std::mem::replace(&mut stream.wanted_free, number) != number;
            is_new.then_some(Ticket { stream: *id, number })
        };
        streams.iter_mut().filter_map(first).collect()
    }

    /// Lets an allocation have memory of its pool whose free is earlier in the order of its stream.
    pub(super) fn take_over(&self, stream: StreamId, pool: PoolId, charge: &Charge) {
        let mut streams = self.streams.lock();
        let Some(found) = streams.get_mut(&stream) else { return };
        for freed in found.frees.values_mut().flatten() {
            if freed.home != stream || freed.pool != pool || freed.of_lease.bytes() == 0 {
                continue;
            }
            let bytes = charge.take_over(&mut freed.of_lease);
            if bytes == 0 {
                break;
            }
            if let Some(of_pool) = &mut freed.of_pool {
                of_pool.shrink(bytes);
            }
        }
    }

    fn progress(&self, id: StreamId, complete: u64) {
        let mut streams = self.streams.lock();
        let Some(stream) = streams.get_mut(&id) else { return };
        while stream.uploads.front().is_some_and(|(number, _)| *number <= complete) {
            stream.uploads.pop_front();
        }
        let launched = stream.graphs.partition_point(|(number, _)| *number <= complete);
        let launched: Vec<_> = stream.graphs.drain(..launched).collect();
        while stream.downloads.front().is_some_and(|(number, _)| *number <= complete) {
            if let Some((_, download)) = stream.downloads.pop_front() {
                self.deliver(download);
            }
        }
        if let Some((_, at)) = stream.timed.take_if(|(number, _)| *number <= complete) {
            self.telemetry.device(at.elapsed(), &self.outbox);
        }
        let more = stream.numbers.complete(complete).is_some();
        self.telemetry.changed(&self.outbox);
        self.completed(id, more, stream);
        let left = stream.frees.split_off(&complete.saturating_add(1));
        let freed = std::mem::replace(&mut stream.frees, left);
        stream.free_count -= freed.values().map(Vec::len).sum::<usize>();
        if stream.is_retired && stream.numbers.backlog() == 0 {
            streams.remove(&id);
        }
        for (number, freed) in freed {
            for freed in freed {
                if !keep(&mut streams, Ticket { stream: id, number }, freed) {
                    self.frees.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        drop(streams);
        // The last use of host memory gives it back to the backend, so no lock is held.
        drop(launched);
    }

    fn deliver(&self, download: StagedDownload) {
        if !download.is_small {
            // At the end of the session there is no receiver, and the bytes are not needed.
            _ = self.bulk.send(download);
            return;
        }
        let (transfer, offset) = (download.transfer, download.offset);
        // SAFETY: the download is complete, and no other submission names the block.
        let bytes = unsafe { download.block.block().shared_bytes() };
        self.outbox.push_chunk(&Chunk { transfer, offset, bytes: &bytes[..download.bytes] });
    }

    fn failed(&self, ticket: Ticket, error: Error) {
        let mut streams = self.streams.lock();
        let Some(stream) = streams.get_mut(&ticket.stream) else { return };
        if matches!(error, Error::Fault(_)) && ticket.number > stream.reset_at {
            self.fault.lock().get_or_insert_with(|| error.clone());
        }
        // The client expects no bytes of a download that failed.
        stream.downloads.retain(|(number, _)| *number != ticket.number);
        if let Some(number) = stream.numbers.client(ticket.number) {
            self.fail(Ticket { number, ..ticket }, error, stream);
        }
    }
}

/// Keeps memory until `ticket` and the tickets of its free are complete. Returns whether one of them is not.
fn keep(streams: &mut IdMap<StreamId, Stream>, mut ticket: Ticket, mut freed: Freed) -> bool {
    loop {
        // A stream that was removed has completed everything.
        if let Some(stream) = streams.get_mut(&ticket.stream)
            && stream.numbers.completed < ticket.number
        {
            stream.free_count += 1;
            stream.frees.entry(ticket.number).or_default().push(freed);
            return true;
        }
        match freed.after.pop() {
            Some(next) => ticket = next,
            None => return false,
        }
    }
}

/// Passes the notices of the backend to the reports.
pub(super) struct Sink(pub(super) Arc<Reports>);

// SAFETY: this sink forwards no notices.
unsafe impl NoticeSink for Sink {
    unsafe fn notice(&self, notice: Notice) {
        let reports = &*self.0;
        match notice {
            Notice::Progress { stream, complete, .. } => {
                reports.progress(stream, complete);
                reports.after_progress();
            }
            Notice::Failed { ticket, error } => reports.failed(ticket, error),
            Notice::Output { text } => reports.outbox.push_output(&text),
            notice => {
                if let Notice::Faulted { error } = &notice {
                    *reports.fault.lock() = Some(error.clone());
                }
                reports.outbox.push(&notice.into());
            }
        }
    }
}

/// The numbers of one stream.
#[derive(Debug, Default)]
struct Numbers {
    /// The last number that the backend has taken.
    taken: u64,
    /// The last number that the backend has completed.
    completed: u64,
    /// The last number of the client that is complete.
    client_completed: u64,
    /// Submissions that are not known to be complete.
    in_flight: VecDeque<InFlight>,
}

/// A submission of the client that is not known to be complete.
#[derive(Debug)]
struct InFlight {
    /// The number of the client.
    client: u64,
    /// The last number of the backend that belongs to it. [`UNFINISHED`] while parts of it are missing.
    last: u64,
    /// Whether a part of it has failed. Failures are not in the order of submissions: a submission that the backend does
    /// not take fails before earlier ones that run.
    has_failed: bool,
}

const UNFINISHED: u64 = u64::MAX;

impl Numbers {
    /// Returns the backend's number for the next part of submission `client`.
    fn begin(&mut self, client: u64, is_last: bool) -> u64 {
        self.taken += 1;
        self.open(client).last = if is_last { self.taken } else { UNFINISHED };
        self.taken
    }

    /// Returns the entry of the last submission of the client. Adds it if this is its first part.
    fn open(&mut self, client: u64) -> &mut InFlight {
        if self.in_flight.back().is_none_or(|back| back.client != client) {
            self.in_flight.push_back(InFlight { client, last: UNFINISHED, has_failed: false });
        }
        let back = self.in_flight.len() - 1;
        &mut self.in_flight[back]
    }

    /// Records that a submission has failed. Returns whether it is in flight and this is its first failure.
    fn fail(&mut self, client: u64) -> bool {
        let found = self.in_flight.binary_search_by_key(&client, |of| of.client);
        let found = found.ok().and_then(|found| self.in_flight.get_mut(found));
        found.is_some_and(|found| !std::mem::replace(&mut found.has_failed, true))
    }

    /// Withdraws the number that [`begin`](Self::begin) returned last, because the backend refused it. The submission
    /// is complete as soon as its predecessors are. Returns whether it is complete now.
    fn refuse(&mut self) -> bool {
        self.taken -= 1;
        self.skip()
    }

    /// Records that no further part of the submission that was [opened](Self::open) last reaches the backend. Returns
    /// whether it is complete.
    fn skip(&mut self) -> bool {
        self.end();
        self.complete(self.completed).is_some()
    }

    /// Records that the last submission has no more parts.
    fn end(&mut self) {
        if let Some(back) = self.in_flight.back_mut() {
            back.last = self.taken;
        }
    }

    /// Records that the backend has completed `number`. Returns the client's number if that completes more.
    fn complete(&mut self, number: u64) -> Option<u64> {
        self.completed = self.completed.max(number);
        let before = self.client_completed;
        while let Some(front) = self.in_flight.front()
            && front.last <= self.completed
        {
            self.client_completed = front.client;
            self.in_flight.pop_front();
        }
        (self.client_completed > before).then_some(self.client_completed)
    }

    /// The client's number for a number of the backend that is in flight.
    fn client(&self, number: u64) -> Option<u64> {
        let found = self.in_flight.partition_point(|of| of.last < number);
        self.in_flight.get(found).map(|of| of.client)
    }

    /// The backend's number that completes submission `client` of the client.
    fn backend(&self, client: u64) -> Stage {
        if client <= self.client_completed {
            return Stage::Complete;
        }
        let found = self.in_flight.partition_point(|of| of.client < client);
        match self.in_flight.get(found) {
            Some(InFlight { last, .. }) if *last != UNFINISHED => Stage::Submitted(*last),
            _ => Stage::Held,
        }
    }

    /// The backend's numbers of the submissions `first..=last` of the client, as far as they are in flight.
    fn range(&self, first: u64, last: u64) -> Option<(u64, u64)> {
        let end_before = |client: u64| {
            let found = self.in_flight.partition_point(|of| of.client < client);
            let before = found.checked_sub(1).and_then(|at| self.in_flight.get(at));
            before.map_or(self.completed, |of| of.last.min(self.taken))
        };
        let (first, last) = (end_before(first) + 1, end_before(last.saturating_add(1)));
        (first <= last).then_some((first, last))
    }

    /// The last number that is complete, in the client's count.
    fn client_completed(&self) -> u64 {
        self.client_completed
    }

    /// The last number that the backend has taken.
    fn taken(&self) -> u64 {
        self.taken
    }

    /// The submissions that the backend has taken and not completed.
    fn backlog(&self) -> u64 {
        self.taken - self.completed.min(self.taken)
    }
}

/// The position of a client's submission.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It, or a part of it, is not submitted.
    Held,
    /// It is complete with this number of the backend.
    Submitted(u64),
    /// It is complete.
    Complete,
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use cuda_core::protocol::{Fault, FaultKind};
    use cuda_lease::wire::{Event, FrameBuffer};

    use super::*;
    use crate::worker::messages::Resume;

    /// A submission that cannot run fails immediately, and an earlier one that runs fails later. Without a report of its
    /// own, the earlier one would count as successful.
    #[test]
    fn each_submission_that_fails_is_reported_once() {
        let reports = Reports::new(channel().0);
        reports.outbox.resume(Resume { epoch: 1, received: 0 }, 0);
        let ticket = |number| Ticket { stream: StreamId(1), number };
        let error = || Error::OutOfHostMemory { requested: 1 };
        let begin = |number, is_last| {
            reports.begin(ticket(number), is_last, StepMemory::Nothing, Instant::now());
        };
        reports.create(StreamId(1));
        begin(1, true);
        begin(2, false);
        begin(2, true);
        reports.skip(ticket(3), error());
        begin(4, true);
        reports.refuse(ticket(4), error());
        (1..=3).for_each(|number| reports.failed(ticket(number), error()));
        let mut frames = FrameBuffer::default();
        frames.extend(&reports.outbox.wait().frames.unwrap());
        let frames = frames.take().unwrap();
        let failed = frames.iter().filter_map(|frame| {
            match Event::decode(frame.header.opcode, frame.body).unwrap() {
                Event::Notice(Notice::Failed { ticket, .. }) => Some(ticket.number),
                _ => None,
            }
        });
        assert_eq!(failed.collect::<Vec<_>>(), [3, 4, 1, 2]);
    }

    /// Work from before a reset may fault or be skipped after it.
    #[test]
    fn refused_submission_fails_with_the_fault_since_the_last_reset() {
        let reports = Reports::new(channel().0);
        let stream = StreamId(1);
        let begin = |number| {
            let ticket = Ticket { stream, number };
            reports.begin(ticket, true, StepMemory::Nothing, Instant::now());
        };
        let fault = |what: &str| Error::from(Fault::new(FaultKind::Trap, what));
        let refused = || Error::DeviceLost { address: "cpu".into(), cause: "second".into() };
        reports.create(stream);
        begin(1);
        reports.reset();
        assert_eq!(reports.cause(refused()), refused());
        begin(2);
        for (number, what) in [(1, "first"), (2, "second"), (1, "first"), (2, "third")] {
            reports.failed(Ticket { stream, number }, fault(what));
        }
        assert_eq!(reports.cause(refused()), fault("second"));
    }

    #[test]
    fn copy_in_parts_is_complete_with_its_last_part() {
        let mut numbers = Numbers::default();
        assert_eq!((numbers.begin(1, false), numbers.begin(1, false)), (1, 2));
        assert_eq!((numbers.backend(1), numbers.complete(2)), (Stage::Held, None));
        assert_eq!(numbers.begin(1, true), 3);
        assert_eq!((numbers.begin(2, true), numbers.client(4)), (4, Some(2)));
        assert_eq!((numbers.client(2), numbers.backend(1)), (Some(1), Stage::Submitted(3)));
        assert_eq!(numbers.complete(3), Some(1));
        assert_eq!(numbers.complete(4), Some(2));
        assert_eq!(numbers.backend(2), Stage::Complete);
    }

    #[test]
    fn range_has_all_parts_of_its_submissions() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.range(1, 9), None);
        for (client, is_last) in [(1, true), (2, false), (2, true), (3, true), (4, false)] {
            numbers.begin(client, is_last);
        }
        assert_eq!(numbers.range(1, 1), Some((1, 1)));
        assert_eq!(numbers.range(2, 2), Some((2, 3)));
        assert_eq!(numbers.range(2, 4), Some((2, 5)));
        assert_eq!(numbers.range(3, u64::MAX), Some((4, 5)));
        assert_eq!((numbers.range(5, 9), numbers.range(3, 2)), (None, None));
        numbers.complete(2);
        assert_eq!(numbers.range(1, 2), Some((3, 3)));
        assert_eq!(numbers.range(1, 1), None);
    }

    #[test]
    fn refused_submission_is_complete_with_those_before_it() {
        let mut numbers = Numbers::default();
        numbers.begin(1, true);
        numbers.begin(2, true);
        assert!(!numbers.refuse());
        assert_eq!(numbers.backend(2), Stage::Submitted(1));
        assert_eq!(numbers.complete(1), Some(2));
        numbers.open(3);
        assert!(numbers.skip());
        assert_eq!((numbers.client_completed(), numbers.begin(4, true)), (3, 2));
    }

    #[test]
    fn copy_that_is_refused_half_way_is_complete_with_its_first_parts() {
        let mut numbers = Numbers::default();
        numbers.begin(1, false);
        numbers.begin(1, false);
        assert!(!numbers.refuse());
        assert_eq!(numbers.backend(1), Stage::Submitted(1));
        assert_eq!(numbers.complete(1), Some(1));
    }
}
