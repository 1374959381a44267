//! The outgoing half of a lane: the frames that wait to be sent to the client, and those that wait for its
//! acknowledgement.
//!
//! Frames for the client have numbers, which the worker gives: they outlive the connections of the client and, where
//! workers outlive their supervisor, the supervisor. Frames for the supervisor have the number 0.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use cuda_core::{
    Error,
    internals::{IdMap, text_prefix},
    protocol::{Notice, Status, StreamId},
};
use cuda_lease::{
    session::{Outgoing, SessionError},
    wire::{Ack, Chunk, Event, FRAME_LIMIT, TEXT_LIMIT, put_frame},
};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::messages::{Resume, Resumed};

/// The maximum number of bytes of events that the client has not acknowledged. A client that lets more gather loses its
/// session.
const LIMIT: usize = 128 << 20;

/// With this number of bytes of small downloads that are not written, no further small download begins. Those in flight
/// add at most the staging memory of downloads. With this number of bytes that are not acknowledged, large downloads
/// wait.
const DOWNLOADS: usize = 16 << 20;

/// The maximum number of bytes of printed text that wait to be sent. More is dropped.
const OUTPUT_LIMIT: usize = 1 << 20;

/// With this number of bytes that the client has not acknowledged, printed text is dropped: a kernel that prints while its
/// client is gone does not end the session.
const UNREAD_BEFORE_OUTPUT: usize = LIMIT / 2;

/// Frames in their order. Progress is cumulative, so a stream has at most one report that waits.
#[derive(Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    filled: Condvar,
    /// Frames were acknowledged, or the outbox was closed.
    drained: Condvar,
    /// The bytes of small downloads that are not written to the socket. They do not wait for an acknowledgement: those of
    /// a paused session arrive behind its commands.
    downloads: AtomicUsize,
    /// Ends the reading of commands, after an overflow.
    overflowed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct Queue {
    /// Frames for the client.
    outgoing: Outgoing,
    epoch: Option<u32>,
    /// Frames without a number.
    unnumbered: Vec<u8>,
    /// Whether the supervisor has a connection for the frames of `outgoing`.
    is_attached: bool,
    /// Sent behind the other frames: everything that progress covers was reported before.
    progress: IdMap<StreamId, u64>,
    /// The bytes of small downloads that were not given out for sending.
    downloads: usize,
    output: usize,
    /// The time at which a report of the session's times is due.
    report_at: Option<Instant>,
    /// See [`Outbox::wake`].
    is_woken: bool,
    closed: bool,
}

impl Default for Queue {
    fn default() -> Self {
        // The first connection sets the epoch. Without a session there are no frames for a client.
        let (outgoing, epoch) = (Outgoing::new(0), None);
        let (unnumbered, is_attached, progress, downloads) = Default::default();
        let (output, report_at, is_woken, closed) = Default::default();
        Self {
            outgoing,
            epoch,
            unnumbered,
            is_attached,
            progress,
            downloads,
            output,
            report_at,
            is_woken,
            closed,
        }
    }
}

impl Queue {
    fn has_frames(&self) -> bool {
        let numbered = self.outgoing.has_more() || !self.progress.is_empty();
        !self.unnumbered.is_empty() || self.is_attached && numbered
    }
}

/// The error in place of an encoded reply that is too long for a frame.
pub(super) fn refusal(body: &[u8]) -> Option<Error> {
    (body.len() > FRAME_LIMIT as usize).then(|| Error::LoadFailed {
        log: format!(
            "the reply about the module has {} bytes, the limit is {FRAME_LIMIT}; split the module into smaller ones",
            body.len()
        ),
    })
}

/// The frames that are sent next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Whether more may follow.
    pub(super) is_open: bool,
    /// Whether a report of the session's times is due. It is reported once.
    pub(super) is_report_due: bool,
    /// Frames without a number. They go before the numbered ones.
    pub(super) unnumbered: Vec<u8>,
    /// Frames for the client.
    pub(super) frames: Option<Bytes>,
    /// The bytes of small downloads among them.
    downloads: usize,
}

impl Outbox {
    /// Sets the call that ends the reading of commands. If the client reads events too slowly, the outbox ends the
    /// session.
    pub(super) fn on_overflow(&self, end: impl Fn() + Send + Sync + 'static) {
        _ = self.overflowed.set(Box::new(end));
    }

    /// Whether another small download may begin.
    pub(super) fn takes_downloads(&self) -> bool {
        self.downloads.load(Ordering::Acquire) < DOWNLOADS
    }

    /// Adds an event. A reply that is too long for a frame becomes an error.
    pub(super) fn push(&self, event: &Event) {
        let mut body = Vec::new();
        event.encode(&mut body);
        if let Event::Reply { id, .. } = event
            && let Some(error) = refusal(&body)
        {
            body.clear();
            Event::Reply { id: *id, reply: Err(error) }.encode(&mut body);
        }
        let Some(queue) = self.open() else { return };
        self.add(queue, event.opcode(), |out| out.extend_from_slice(&body));
    }

    /// Adds text that a kernel printed, in parts that fit in a message. Text beyond [`OUTPUT_LIMIT`] and
    /// [`UNREAD_BEFORE_OUTPUT`] is dropped.
    pub(super) fn push_output(&self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(text_prefix(rest, TEXT_LIMIT).len());
            let Some(mut queue) = self.open() else { return };
            queue.output += part.len();
            if queue.output > OUTPUT_LIMIT || queue.outgoing.bytes() > UNREAD_BEFORE_OUTPUT {
                return;
            }
            let event = Event::Notice(Notice::Output { text: part.to_owned() });
            self.add(queue, event.opcode(), |out| event.encode(out));
            rest = behind;
        }
    }

    /// Adds the bytes of a small download.
    pub(super) fn push_chunk(&self, chunk: &Chunk<'_>) {
        let Some(mut queue) = self.open() else { return };
        queue.downloads += chunk.bytes.len();
        self.downloads.fetch_add(chunk.bytes.len(), Ordering::AcqRel);
        self.add(queue, Chunk::OPCODE, |out| chunk.encode(out));
    }

    /// Adds bytes of a large download, once the client has acknowledged enough. Returns `false` at the end of the session.
    pub(super) fn push_chunk_in_turn(&self, chunk: &Chunk<'_>) -> bool {
        let mut queue = self.queue.lock();
        while queue.outgoing.bytes() >= DOWNLOADS && !queue.closed {
            self.drained.wait(&mut queue);
        }
        let is_open = !queue.closed;
        if is_open {
            self.add(queue, Chunk::OPCODE, |out| chunk.encode(out));
        }
        is_open
    }

    /// Adds a frame for the supervisor, which may pass it on to the client that is connected.
    pub(super) fn push_unnumbered(&self, opcode: u16, body: impl FnOnce(&mut Vec<u8>)) {
        let Some(mut queue) = self.open() else { return };
        put_frame(&mut queue.unnumbered, opcode, 0, 0, body);
        self.added(queue);
    }

    /// Reports the end of the session to the supervisor, which tells the client.
    pub(super) fn push_lost(&self, error: Error) {
        let lost = Event::Notice(Notice::Lost { error });
        self.push_unnumbered(lost.opcode(), |out| lost.encode(out));
    }

    /// Reports the progress of a stream, in the client's numbers.
    pub(super) fn progress(&self, stream: StreamId, complete: u64) {
        let Some(mut queue) = self.open() else { return };
        let known = queue.progress.entry(stream).or_default();
        *known = complete.max(*known);
        drop(queue);
        self.filled.notify_one();
    }

    /// The queue, or `None` if the session has ended: then nothing is added.
    fn open(&self) -> Option<MutexGuard<'_, Queue>> {
        Some(self.queue.lock()).filter(|queue| !queue.closed)
    }

    fn add(&self, mut queue: MutexGuard<'_, Queue>, opcode: u16, body: impl FnOnce(&mut Vec<u8>)) {
        queue.outgoing.push(opcode, body);
        self.added(queue);
    }

    fn added(&self, mut queue: MutexGuard<'_, Queue>) {
        if queue.outgoing.bytes() + queue.unnumbered.len() > LIMIT {
            self.overflow(&mut queue);
        }
        drop(queue);
        self.filled.notify_one();
    }

    /// Ends the session of a client that reads too slowly. The reason takes the place of all events.
    #[cold]
    fn overflow(&self, queue: &mut Queue) {
        let detail = format!(
            "more than {LIMIT} bytes of events wait for the client; read events while you send commands"
        );
        let (address, status) = ("the lease".into(), Status::Revoked);
        let lost = Event::Notice(Notice::Lost { error: Error::Remote { address, status, detail } });
        queue.outgoing = Outgoing::new(queue.epoch.unwrap_or_default());
        queue.progress.clear();
        queue.unnumbered = Vec::new();
        self.downloads.fetch_sub(std::mem::take(&mut queue.downloads), Ordering::AcqRel);
        put_frame(&mut queue.unnumbered, lost.opcode(), 0, 0, |out| lost.encode(out));
        queue.closed = true;
        if let Some(end) = self.overflowed.get() {
            end();
        }
    }

    /// The supervisor has a connection of the client, which has received everything up to `resume.received`. `received`
    /// is what the worker has received on the lane.
    pub(super) fn resume(&self, resume: Resume, received: u64) {
        let mut queue = self.queue.lock();
        let resumed = queue.resume(resume);
        queue.is_attached = resumed.is_ok();
        let error = resumed.err().unwrap_or_default();
        let resumed = Resumed { received, error };
        put_frame(&mut queue.unnumbered, Resumed::OPCODE, 0, 0, |out| resumed.encode(out));
        drop(queue);
        self.drained.notify_all();
        self.filled.notify_one();
    }

    /// The supervisor is gone, and with it the connection of the client.
    pub(super) fn detach(&self) {
        let mut queue = self.queue.lock();
        queue.is_attached = false;
        queue.unnumbered.clear();
    }

    /// The client has received everything up to `received`.
    ///
    /// # Errors
    /// Such a frame was not sent.
    pub(super) fn acknowledge(&self, received: u64) -> Result<(), SessionError> {
        self.queue.lock().outgoing.acknowledge(received)?;
        self.drained.notify_all();
        Ok(())
    }

    /// Acknowledges frames of the client.
    pub(super) fn push_acknowledgement(&self, received: u64) {
        self.push_unnumbered(Ack::OPCODE, |out| Ack { received }.encode(out));
    }

    /// Makes [`wait`](Self::wait) return at this time, also without frames.
    pub(super) fn schedule_report(&self, at: Instant) {
        self.queue.lock().report_at = Some(at);
        self.filled.notify_one();
    }

    /// Makes [`wait`](Self::wait) return, also without frames.
    pub(super) fn wake(&self) {
        self.queue.lock().is_woken = true;
        self.filled.notify_one();
    }

    /// Waits for frames or for the time of a report, and takes the frames.
    pub(super) fn wait(&self) -> Batch {
        let mut queue = self.queue.lock();
        while !queue.has_frames() && !queue.is_woken && !queue.closed {
            match queue.report_at {
                None => self.filled.wait(&mut queue),
                Some(at) => {
                    if self.filled.wait_until(&mut queue, at).timed_out() {
                        break;
                    }
                }
            }
        }
        let is_report_due = queue.report_at.take_if(|at| *at <= Instant::now()).is_some();
        let unnumbered = std::mem::take(&mut queue.unnumbered);
        queue.output = 0;
        queue.is_woken = false;
        let frames = if queue.is_attached { queue.take() } else { None };
        let downloads = match &frames {
            Some(_) => std::mem::take(&mut queue.downloads),
            None => 0,
        };
        let is_open = !queue.closed || !unnumbered.is_empty() || frames.is_some();
        Batch { is_open, is_report_due, unnumbered, frames, downloads }
    }

    /// Counts a batch as written. Returns whether small downloads can go on that waited.
    pub(super) fn written(&self, batch: &Batch) -> bool {
        let before = self.downloads.fetch_sub(batch.downloads, Ordering::AcqRel);
        before >= DOWNLOADS && before - batch.downloads < DOWNLOADS
    }

    /// Ends [`wait`](Self::wait) when everything was sent.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.filled.notify_one();
        self.drained.notify_all();
    }
}

impl Queue {
    fn resume(&mut self, Resume { epoch, received }: Resume) -> Result<(), String> {
        match self.epoch {
            None => {
                self.epoch = Some(epoch);
                self.outgoing = Outgoing::new(epoch);
            }
            Some(own) if own != epoch => {
                return Err(
                    "the lease has another session; resume that one, or acquire a new lease".into(),
                );
            }
            Some(_) => {}
        }
        self.outgoing.resume(received).map_err(|error| error.to_string())
    }

    /// Takes the numbered frames, with the progress of all streams.
    fn take(&mut self) -> Option<Bytes> {
        for (stream, complete) in self.progress.drain() {
            let progress = Event::Notice(Notice::Progress { stream, accepted: complete, complete });
            self.outgoing.push(progress.opcode(), |out| progress.encode(out));
        }
        self.outgoing.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_core::protocol::Reply;
    use cuda_lease::wire::{Frame, FrameBuffer, Frames, TransferId};

    use crate::worker::Drained;

    /// An outbox with a connection.
    fn attached() -> Outbox {
        let outbox = Outbox::default();
        outbox.resume(Resume { epoch: 1, received: 0 }, 0);
        assert_eq!(frames(&outbox.wait().unnumbered).iter().count(), 1);
        outbox
    }

    fn frames(bytes: &[u8]) -> Frames {
        let mut buffer = FrameBuffer::default();
        buffer.extend(bytes);
        let frames = buffer.take().unwrap();
        assert!(buffer.is_empty());
        frames
    }

    fn decoded(bytes: &[u8]) -> Vec<Event> {
        let decode = |frame: Frame<'_>| Event::decode(frame.header.opcode, frame.body).unwrap();
        frames(bytes).iter().map(decode).collect()
    }

    fn events(outbox: &Outbox) -> Vec<Event> {
        decoded(&outbox.wait().frames.unwrap_or_default())
    }

    #[test]
    fn progress_follows_everything_that_was_reported_before_it() {
        let outbox = attached();
        outbox.progress(StreamId(3), 1);
        outbox.push_output("a");
        outbox.progress(StreamId(3), 2);
        let events = events(&outbox);
        let progress =
            Event::Notice(Notice::Progress { stream: StreamId(3), accepted: 2, complete: 2 });
        assert_eq!(events, [Event::Notice(Notice::Output { text: "a".into() }), progress]);
        outbox.close();
        assert!(!outbox.wait().is_open);
    }

    #[test]
    fn frames_are_sent_again_until_the_client_has_acknowledged_them() {
        let outbox = attached();
        let texts = |outbox: &Outbox| -> Vec<_> {
            let frames = frames(&outbox.wait().frames.unwrap_or_default());
            frames.iter().map(|frame| (frame.header.sequence, frame.header.epoch)).collect()
        };
        outbox.push_output("a");
        outbox.push_output("b");
        assert_eq!(texts(&outbox), [(1, 1), (2, 1)]);
        // Nothing is sent while no supervisor has a connection.
        outbox.detach();
        outbox.push_output("c");
        outbox.push_unnumbered(Drained::OPCODE, |_| {});
        let batch = outbox.wait();
        assert!(batch.frames.is_none() && !batch.unnumbered.is_empty());
        let resume = |received| outbox.resume(Resume { epoch: 1, received }, 7);
        resume(1);
        let batch = outbox.wait();
        let answer = frames(&batch.unnumbered);
        let answer = answer.iter().map(|frame| Resumed::decode(frame.body).unwrap());
        assert_eq!(answer.collect::<Vec<_>>(), [Resumed { received: 7, error: String::new() }]);
        let mut sent: Vec<_> =
            frames(&batch.frames.unwrap()).iter().map(|frame| frame.header.sequence).collect();
        sent.extend(texts(&outbox).into_iter().map(|(sequence, _)| sequence));
        assert_eq!(sent, [2, 3]);
        // The client cannot take an acknowledgement back, and no other session takes the place of this one.
        outbox.acknowledge(3).unwrap();
        assert!(outbox.acknowledge(4).is_err());
        for resume in [Resume { epoch: 1, received: 1 }, Resume { epoch: 2, received: 3 }] {
            outbox.resume(resume, 7);
            let batch = outbox.wait();
            let answer = frames(&batch.unnumbered);
            let error = answer.iter().map(|frame| Resumed::decode(frame.body).unwrap().error);
            assert!(error.into_iter().all(|error| !error.is_empty()));
            assert!(batch.frames.is_none());
        }
    }

    #[test]
    fn large_downloads_wait_for_acknowledgements() {
        use std::sync::mpsc;
        let outbox = std::sync::Arc::new(attached());
        let (sent, pushed) = mpsc::channel();
        let own = outbox.clone();
        let pushing = std::thread::spawn(move || {
            let bytes = vec![0; 256 << 10];
            let chunk = Chunk { transfer: TransferId(1), offset: 0, bytes: &bytes };
            while own.push_chunk_in_turn(&chunk) {
                sent.send(()).unwrap();
            }
        });
        let window = DOWNLOADS / (256 << 10);
        (0..window).for_each(|_| pushed.recv().unwrap());
        let first = frames(&outbox.wait().frames.unwrap());
        let last = first.iter().map(|frame| frame.header.sequence).last().unwrap();
        assert_eq!(last, window as u64);
        assert!(pushed.try_recv().is_err());
        outbox.acknowledge(last).unwrap();
        pushed.recv().unwrap();
        outbox.close();
        pushing.join().unwrap();
    }

    #[test]
    fn long_output_arrives_in_parts() {
        let outbox = attached();
        let text = "é".repeat(TEXT_LIMIT);
        outbox.push_output(&text);
        let parts = events(&outbox).into_iter().map(|event| match event {
            Event::Notice(Notice::Output { text }) => text,
            other => panic!("{other:?}"),
        });
        assert_eq!(parts.collect::<String>(), text);
    }

    /// A kernel prints while its client is gone, or takes no events.
    #[test]
    fn output_that_is_not_acknowledged_is_dropped_and_ends_no_session() {
        let outbox = attached();
        let text = "x".repeat(TEXT_LIMIT);
        let mut sent = 0;
        for _ in 0..2 * LIMIT / TEXT_LIMIT {
            outbox.push_output(&text);
            outbox.progress(StreamId(1), 1);
            sent += events(&outbox).len();
        }
        outbox.acknowledge(sent as u64).unwrap();
        outbox.push_output("y");
        assert_eq!(events(&outbox).len(), 1);
    }

    #[test]
    fn small_downloads_wait_until_earlier_ones_are_written() {
        let outbox = attached();
        let bytes = [0; 16 << 10];
        while outbox.takes_downloads() {
            outbox.push_chunk(&Chunk { transfer: TransferId(1), offset: 0, bytes: &bytes });
        }
        let batch = outbox.wait();
        assert!(batch.frames.as_ref().unwrap().len() >= DOWNLOADS && !outbox.takes_downloads());
        assert!(outbox.written(&batch) && outbox.takes_downloads());
        outbox.progress(StreamId(1), 1);
        assert!(!outbox.written(&outbox.wait()));
    }

    #[test]
    fn overflow_ends_the_session_with_a_reason() {
        let (ended, has_ended) = std::sync::mpsc::channel();
        let outbox = attached();
        outbox.on_overflow(move || ended.send(()).unwrap());
        let bytes = vec![0; 256 << 10];
        for _ in 0..2 * LIMIT / bytes.len() {
            outbox.push_chunk(&Chunk { transfer: TransferId(1), offset: 0, bytes: &bytes });
            assert!(outbox.queue.lock().outgoing.bytes() <= LIMIT + bytes.len() + (1 << 10));
        }
        has_ended.try_recv().unwrap();
        let batch = outbox.wait();
        assert_eq!(batch.frames, None);
        match decoded(&batch.unnumbered).as_slice() {
            [Event::Notice(Notice::Lost { error })] => {
                assert!(error.to_string().contains("read events"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        assert!(!outbox.wait().is_open);
    }

    #[test]
    fn reply_that_is_too_long_for_a_frame_becomes_an_error() {
        let outbox = attached();
        let (max_threads, entries) = (vec![1024; FRAME_LIMIT as usize / 4], Vec::new());
        let reply = Reply::Loaded { max_threads, log: String::new(), entries };
        outbox.push(&Event::Reply { id: 5, reply: Ok(reply) });
        match events(&outbox).as_slice() {
            [Event::Reply { id: 5, reply: Err(error) }] => {
                assert!(error.to_string().contains("split the module"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}
