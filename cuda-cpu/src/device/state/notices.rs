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
    internals::IdMap,
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
    /// The streams to report, in the order of delivery.
    waiting: VecDeque<StreamId>,
    /// The numbers up to which they are complete. So there is at most one report for each stream, however many are
    /// requested: a receiver may request several during the delivery of each.
    complete: IdMap<StreamId, u64>,
    delivering: bool,
}

impl Notices {
    pub(crate) fn new(sink: Arc<dyn NoticeSink>) -> Self {
        Self { sink, state: Mutex::default() }
    }

    /// Adds a report, and returns whether none of the stream was waiting. If so, the caller must then make a thread
    /// call [`Notices::begin`]. Numbers of a stream do not decrease.
    pub(crate) fn post(&self, stream: StreamId, complete: u64) -> bool {
        let mut state = self.state.lock();
        let is_new = state.complete.insert(stream, complete).is_none();
        if is_new {
            state.waiting.push_back(stream);
        }
        is_new
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
        let stream = state.waiting.pop_front();
        state.delivering = stream.is_some();
        stream.and_then(|stream| state.complete.remove_entry(&stream))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{OnceLock, Weak};

    use super::*;

    /// Requests reports of other streams while it gets one, as a client with many dropped resources does.
    #[derive(Default)]
    struct Greedy {
        notices: OnceLock<Weak<Notices>>,
        got: Mutex<Vec<(StreamId, u64)>>,
    }

    // SAFETY: this sink forwards no notices.
    unsafe impl NoticeSink for Greedy {
        unsafe fn notice(&self, notice: Notice) {
            let Notice::Progress { stream, complete, .. } = notice else { return };
            let mut got = self.got.lock();
            got.push((stream, complete));
            if got.len() > 4 {
                return;
            }
            let notices = self.notices.get().and_then(Weak::upgrade).unwrap();
            for stream in (2..5).cycle().take(30) {
                notices.post(StreamId(stream), 7);
            }
        }
    }

    #[test]
    fn one_report_of_a_stream_waits_at_most() {
        let sink = Arc::new(Greedy::default());
        let notices = Arc::new(Notices::new(sink.clone()));
        sink.notices.set(Arc::downgrade(&notices)).unwrap();
        assert!(notices.post(StreamId(1), 1));
        assert!(!notices.post(StreamId(1), 3));
        assert!(notices.begin());
        notices.deliver();
        let got = sink.got.lock();
        assert_eq!(got[0], (StreamId(1), 3));
        assert_eq!(got[1..4], [2, 3, 4].map(|id| (StreamId(id), 7)));
        // Four notices posted, and three streams were waiting then.
        assert_eq!(got.len(), 7);
    }
}
