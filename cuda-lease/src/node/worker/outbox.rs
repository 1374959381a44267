//! The events that wait to be sent to the client.

use std::time::Instant;

use cuda_core::{Error, protocol::StreamId};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use crate::wire::{Chunk, Event, FRAME_LIMIT, HEADER_BYTES, TEXT_LIMIT, put_frame};

/// The maximum number of bytes of events that wait. A client that reads too slowly loses its session.
const LIMIT: usize = 64 << 20;

/// The maximum number of bytes of printed text that wait. More is dropped.
const OUTPUT_LIMIT: usize = 1 << 20;

/// Events in their order. Progress is cumulative, so a stream has at most one report.
#[derive(Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    frames: Vec<u8>,
    /// Sent behind `frames`: everything that progress covers was reported before.
    progress: FxHashMap<StreamId, u64>,
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
}

impl Outbox {
    /// Adds an event. A reply that is too long for a frame becomes an error.
    pub(super) fn push(&self, event: &Event) {
        let mut queue = self.queue.lock();
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
            let (part, behind) = rest.split_at(rest.floor_char_boundary(TEXT_LIMIT));
            let mut queue = self.queue.lock();
            queue.output += part.len();
            if queue.output > OUTPUT_LIMIT {
                return;
            }
            let event = Event::Output { text: part.to_owned() };
            put_frame(&mut queue.frames, event.opcode(), 0, 0, |out| event.encode(out));
            self.added(queue);
            rest = behind;
        }
    }

    /// Adds the bytes of a small download.
    pub(super) fn push_chunk(&self, chunk: &Chunk<'_>) {
        let mut queue = self.queue.lock();
        put_frame(&mut queue.frames, Chunk::OPCODE, 0, 0, |out| chunk.encode(out));
        self.added(queue);
    }

    /// Adds a frame that is no event.
    pub(super) fn push_frame(&self, opcode: u16, body: impl FnOnce(&mut Vec<u8>)) {
        let mut queue = self.queue.lock();
        put_frame(&mut queue.frames, opcode, 0, 0, body);
        self.added(queue);
    }

    /// Reports the progress of a stream, in the client's numbers.
    pub(super) fn progress(&self, stream: StreamId, complete: u64) {
        let mut queue = self.queue.lock();
        let known = queue.progress.entry(stream).or_default();
        *known = complete.max(*known);
        self.added(queue);
    }

    fn added(&self, mut queue: parking_lot::MutexGuard<'_, Queue>) {
        if queue.frames.len() > LIMIT {
            queue.closed = true;
        }
        drop(queue);
        self.filled.notify_one();
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
        for (stream, complete) in queue.progress.drain() {
            let progress = Event::Progress { stream, accepted: complete, complete };
            put_frame(out, progress.opcode(), 0, 0, |out| progress.encode(out));
        }
        Wake { is_open: !(queue.closed && out.is_empty()), is_report_due }
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
    use crate::wire::{FrameBuffer, QueryReply};

    fn events(outbox: &Outbox) -> Vec<Event> {
        let (mut out, mut buffer) = (Vec::new(), FrameBuffer::default());
        assert!(outbox.wait(&mut out).is_open);
        buffer.extend(&out);
        let frames = buffer.take().unwrap();
        assert!(buffer.is_empty());
        frames.iter().map(|it| Event::decode(it.header.opcode, it.body).unwrap()).collect()
    }

    #[test]
    fn progress_follows_everything_that_was_reported_before_it() {
        let outbox = Outbox::default();
        outbox.progress(StreamId(3), 1);
        outbox.push_output("a");
        outbox.progress(StreamId(3), 2);
        let events = events(&outbox);
        let progress = Event::Progress { stream: StreamId(3), accepted: 2, complete: 2 };
        assert_eq!(events, [Event::Output { text: "a".into() }, progress]);
        outbox.close();
        assert!(!outbox.wait(&mut Vec::new()).is_open);
    }

    #[test]
    fn long_output_arrives_in_parts() {
        let outbox = Outbox::default();
        let text = "é".repeat(TEXT_LIMIT);
        outbox.push_output(&text);
        let parts = events(&outbox).into_iter().map(|event| match event {
            Event::Output { text } => text,
            other => panic!("{other:?}"),
        });
        assert_eq!(parts.collect::<String>(), text);
    }

    #[test]
    fn reply_that_is_too_long_for_a_frame_becomes_an_error() {
        let outbox = Outbox::default();
        let (max_threads, entries) = (vec![1024; FRAME_LIMIT as usize / 4], Vec::new());
        let reply = QueryReply::Loaded { max_threads, log: String::new(), entries };
        outbox.push(&Event::Reply { id: 5, reply: Ok(reply) });
        match events(&outbox).as_slice() {
            [Event::Reply { id: 5, reply: Err(error) }] => {
                assert!(error.to_string().contains("split the module"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}
