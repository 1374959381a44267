//! Delivery of notices.
//!
//! A waker may block, and may drop the last handle of the device. Progress is therefore delivered separately from the
//! streams, by one thread at a time: a pump that finds no other thread delivering. This pump has released its queue and
//! does not count as a pump during the delivery, so a waker that blocks delays only other notices. A pump delivers,
//! because it is awake when there is progress to report. Waking another thread would more than double the latency of a
//! short operation. A failure wakes no task, so the pump delivers it immediately, before the progress that covers it.

use std::{collections::VecDeque, sync::Arc};

use cuda_core::{
    Error, NoticeSink, Ticket,
    protocol::{Notice, StreamId},
};
use parking_lot::Mutex;

use super::lost::contained;

pub(crate) struct Notices {
    sink: Arc<dyn NoticeSink>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Streams with the numbers up to which they are complete, in the order of delivery.
    waiting: VecDeque<(StreamId, u64)>,
    delivering: bool,
}

impl Notices {
    pub(crate) fn new(sink: Arc<dyn NoticeSink>) -> Self {
        Self { sink, state: Mutex::default() }
    }

    /// Adds a report. The caller must then make a thread call [`Notices::begin`].
    pub(crate) fn post(&self, stream: StreamId, complete: u64) {
        self.state.lock().waiting.push_back((stream, complete));
    }

    /// Whether there is a report to deliver.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }

    /// Whether there is a report to deliver and no thread delivers. If so, the caller must call [`Notices::deliver`].
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.state.lock();
        let begun = !state.delivering && !state.waiting.is_empty();
        state.delivering |= begun;
        begun
    }

    /// Delivers all reports, including those posted during the delivery.
    pub(crate) fn deliver(&self) {
        while let Some((stream, complete)) = self.next() {
            self.send(Notice::Progress { stream, accepted: complete, complete });
        }
    }

    /// Reports a failure. It wakes no task.
    pub(crate) fn failed(&self, ticket: Ticket, error: Error) {
        self.send(Notice::Failed { ticket, error });
    }

    /// Reports the fault that loses the device. It wakes no task.
    pub(crate) fn faulted(&self, error: Error) {
        self.send(Notice::Faulted { error });
    }

    /// Reports text that a kernel printed. It wakes no task.
    pub(crate) fn printed(&self, text: &str) {
        self.send(Notice::Output { text: text.to_owned() });
    }

    fn send(&self, notice: Notice) {
        // The panic hook has reported a panic of a waker. It does not affect the device.
        // SAFETY: queues report a number when its item has run or was skipped, and failures before that.
        drop(contained(|| unsafe { self.sink.notice(notice) }));
    }

    fn next(&self) -> Option<(StreamId, u64)> {
        let mut state = self.state.lock();
        let next = state.waiting.pop_front();
        state.delivering = next.is_some();
        next
    }
}
