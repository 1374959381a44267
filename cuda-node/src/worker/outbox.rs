//! The events that wait to be sent to the client.

use std::{
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use cuda_core::{
    Error,
    internals::text_prefix,
    protocol::{Notice, Status, StreamId},
};
use cuda_lease::wire::{Chunk, Event, FRAME_LIMIT, HEADER_BYTES, TEXT_LIMIT, put_frame};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHashMap;

/// The maximum number of bytes of events that wait. A client that has more loses its session.
const LIMIT: usize = 128 << 20;

/// With this number of bytes of small downloads waiting, no further small download begins. Those in flight add at most
/// the staging memory of downloads.
const DOWNLOADS: usize = 16 << 20;

/// The maximum number of bytes of printed text that wait. More is dropped.
const OUTPUT_LIMIT: usize = 1 << 20;

/// Events in their order. Progress is cumulative, so a stream has at most one report.
#[derive(Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    filled: Condvar,
    /// The bytes of small downloads that are not written to the socket.
    downloads: AtomicUsize,
    /// The socket of commands. No command is read after an overflow.
    commands: OnceLock<UnixStream>,
}

#[derive(Default)]
struct Queue {
    frames: Vec<u8>,
    /// Sent behind `frames`: everything that progress covers was reported before.
    progress: FxHashMap<StreamId, u64>,
    /// The bytes of downloads in `frames`.
    downloads: usize,
    output: usize,
    /// The time at which a report of the session's times is due.
    report_at: Option<Instant>,
    closed: bool,
}

/// The reason for which [`Outbox::wait`] returns.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wake {
    /// Whether more may follow.
    pub(super) is_open: bool,
    /// Whether a report of the session's times is due. It is reported once.
    pub(super) is_report_due: bool,
    /// The bytes of downloads among the events.
    downloads: usize,
}

impl Outbox {
    /// Sets the socket of commands. If the client reads events too slowly, the outbox ends the session: it ends the
    /// reading of this socket.
    pub(super) fn set_commands(&self, socket: UnixStream) {
        _ = self.commands.set(socket);
    }

    /// Whether another small download may begin.
    pub(super) fn takes_downloads(&self) -> bool {
        self.downloads.load(Ordering::Acquire) < DOWNLOADS
    }

    /// Adds an event. A reply that is too long for a frame becomes an error.
    pub(super) fn push(&self, event: &Event) {
        let Some(mut queue) = self.open() else { return };
        let start = queue.frames.len();
        put_frame(&mut queue.frames, event.opcode(), 0, 0, |out| event.encode(out));
        let length = queue.frames.len() - start - HEADER_BYTES;
        if length > FRAME_LIMIT as usize {
            queue.frames.truncate(start);
            if let Event::Reply { id, .. } = event {
                let log = format!(
                    "the reply about the module has {length} bytes, the limit is {FRAME_LIMIT}; split the module into \
                     smaller ones"
                );
                let error = Event::Reply { id: *id, reply: Err(Error::LoadFailed { log }) };
                put_frame(&mut queue.frames, error.opcode(), 0, 0, |out| error.encode(out));
            }
        }
        self.added(queue);
    }

    /// Adds text that a kernel printed, in parts that fit in a message. Text beyond [`OUTPUT_LIMIT`] is dropped.
    pub(super) fn push_output(&self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(text_prefix(rest, TEXT_LIMIT).len());
            let Some(mut queue) = self.open() else { return };
            queue.output += part.len();
            if queue.output > OUTPUT_LIMIT {
                return;
            }
            let event = Event::Notice(Notice::Output { text: part.to_owned() });
            put_frame(&mut queue.frames, event.opcode(), 0, 0, |out| event.encode(out));
            self.added(queue);
            rest = behind;
        }
    }

    /// Adds the bytes of a small download.
    pub(super) fn push_chunk(&self, chunk: &Chunk<'_>) {
        let Some(mut queue) = self.open() else { return };
        put_frame(&mut queue.frames, Chunk::OPCODE, 0, 0, |out| chunk.encode(out));
        queue.downloads += chunk.bytes.len();
        self.downloads.fetch_add(chunk.bytes.len(), Ordering::AcqRel);
        self.added(queue);
    }

    /// Adds a frame that is not an event.
    pub(super) fn push_frame(&self, opcode: u16, body: impl FnOnce(&mut Vec<u8>)) {
        let Some(mut queue) = self.open() else { return };
        put_frame(&mut queue.frames, opcode, 0, 0, body);
        self.added(queue);
    }

    /// Reports the progress of a stream, in the client's numbers.
    pub(super) fn progress(&self, stream: StreamId, complete: u64) {
        let Some(mut queue) = self.open() else { return };
        let known = queue.progress.entry(stream).or_default();
        *known = complete.max(*known);
        self.added(queue);
    }

    /// The queue, or `None` if the session has ended: then nothing is added.
    fn open(&self) -> Option<MutexGuard<'_, Queue>> {
        Some(self.queue.lock()).filter(|queue| !queue.closed)
    }

    fn added(&self, mut queue: MutexGuard<'_, Queue>) {
        if queue.frames.len() > LIMIT && !queue.closed {
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
        queue.frames = Vec::new();
        queue.progress.clear();
        self.downloads.fetch_sub(std::mem::take(&mut queue.downloads), Ordering::AcqRel);
        put_frame(&mut queue.frames, lost.opcode(), 0, 0, |out| lost.encode(out));
        queue.closed = true;
        if let Some(commands) = self.commands.get() {
            _ = commands.shutdown(Shutdown::Read);
        }
    }

    /// Makes [`wait`](Self::wait) return at this time, also without events.
    pub(super) fn schedule_report(&self, at: Instant) {
        self.queue.lock().report_at = Some(at);
        self.filled.notify_one();
    }

    /// Waits for events or for the time of a report, and moves the events to `out`.
    pub(super) fn wait(&self, out: &mut Vec<u8>) -> Wake {
        let mut queue = self.queue.lock();
        while queue.frames.is_empty() && queue.progress.is_empty() && !queue.closed {
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
        out.clear();
        std::mem::swap(&mut queue.frames, out);
        queue.output = 0;
        let downloads = std::mem::take(&mut queue.downloads);
        for (stream, complete) in queue.progress.drain() {
            let progress = Event::Notice(Notice::Progress { stream, accepted: complete, complete });
            put_frame(out, progress.opcode(), 0, 0, |out| progress.encode(out));
        }
        Wake { is_open: !(queue.closed && out.is_empty()), is_report_due, downloads }
    }

    /// Counts the events of a [`wait`](Self::wait) as written. Returns whether small downloads can go on that waited.
    pub(super) fn written(&self, wake: &Wake) -> bool {
        let before = self.downloads.fetch_sub(wake.downloads, Ordering::AcqRel);
        before >= DOWNLOADS && before - wake.downloads < DOWNLOADS
    }

    /// Ends [`wait`](Self::wait) when everything was sent.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.filled.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_core::protocol::Reply;
    use cuda_lease::wire::{FrameBuffer, TransferId};

    fn events(outbox: &Outbox) -> Vec<Event> {
        let (mut out, mut buffer) = (Vec::new(), FrameBuffer::default());
        outbox.wait(&mut out);
        buffer.extend(&out);
        let frames = buffer.take().unwrap();
        assert!(buffer.is_empty());
        frames.iter().map(|frame| Event::decode(frame.header.opcode, frame.body).unwrap()).collect()
    }

    #[test]
    fn progress_follows_everything_that_was_reported_before_it() {
        let outbox = Outbox::default();
        outbox.progress(StreamId(3), 1);
        outbox.push_output("a");
        outbox.progress(StreamId(3), 2);
        let events = events(&outbox);
        let progress =
            Event::Notice(Notice::Progress { stream: StreamId(3), accepted: 2, complete: 2 });
        assert_eq!(events, [Event::Notice(Notice::Output { text: "a".into() }), progress]);
        outbox.close();
        assert!(!outbox.wait(&mut Vec::new()).is_open);
    }

    #[test]
    fn long_output_arrives_in_parts() {
        let outbox = Outbox::default();
        let text = "é".repeat(TEXT_LIMIT);
        outbox.push_output(&text);
        let parts = events(&outbox).into_iter().map(|event| match event {
            Event::Notice(Notice::Output { text }) => text,
            other => panic!("{other:?}"),
        });
        assert_eq!(parts.collect::<String>(), text);
    }

    #[test]
    fn small_downloads_wait_until_earlier_ones_are_written() {
        let outbox = Outbox::default();
        let bytes = [0; 16 << 10];
        while outbox.takes_downloads() {
            outbox.push_chunk(&Chunk { transfer: TransferId(1), offset: 0, bytes: &bytes });
        }
        let mut out = Vec::new();
        let wake = outbox.wait(&mut out);
        assert!(out.len() >= DOWNLOADS && !outbox.takes_downloads());
        assert!(outbox.written(&wake) && outbox.takes_downloads());
        outbox.progress(StreamId(1), 1);
        assert!(!outbox.written(&outbox.wait(&mut out)));
    }

    #[test]
    fn overflow_ends_the_session_with_a_reason() {
        use std::io::Read;
        let outbox = Outbox::default();
        let (mut commands, _supervisor) = UnixStream::pair().unwrap();
        outbox.set_commands(commands.try_clone().unwrap());
        let bytes = vec![0; 256 << 10];
        for _ in 0..2 * LIMIT / bytes.len() {
            outbox.push_chunk(&Chunk { transfer: TransferId(1), offset: 0, bytes: &bytes });
            assert!(outbox.queue.lock().frames.len() <= LIMIT + bytes.len() + (1 << 10));
        }
        // The socket of commands is at its end.
        assert_eq!(commands.read(&mut [0]).unwrap(), 0);
        match events(&outbox).as_slice() {
            [Event::Notice(Notice::Lost { error })] => {
                assert!(error.to_string().contains("read events"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        assert!(!outbox.wait(&mut Vec::new()).is_open);
    }

    #[test]
    fn reply_that_is_too_long_for_a_frame_becomes_an_error() {
        let outbox = Outbox::default();
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
