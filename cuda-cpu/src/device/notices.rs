//! Telling whoever waits how far streams are.
//!
//! A waker may block, and may drop the device's last handle. So notices are told apart from streams, by one thread at a
//! time: the pump that finds nobody at it. It has let go of its stream by then, and does not count as a pump while
//! it tells, so what a waker that blocks holds up is other notices, and nothing else. A pump is awake anyway when
//! there is something to tell: another thread would have to be woken first, which more than doubles how long a
//! short operation takes.

use std::{collections::VecDeque, sync::Arc};

use cuda_core::{Notice, NoticeSink};
use parking_lot::Mutex;

use super::work::contained;

pub(crate) struct Notices {
    sink: Arc<dyn NoticeSink>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In the order in which they are told.
    waiting: VecDeque<Notice>,
    telling: bool,
}

impl Notices {
    pub(crate) fn new(sink: Arc<dyn NoticeSink>) -> Self {
        Self { sink, state: Mutex::default() }
    }

    /// Leaves a notice; whoever does so sees to it that a thread comes to [`Notices::begin`] after that.
    pub(crate) fn post(&self, notice: Notice) {
        self.state.lock().waiting.push_back(notice);
    }

    /// Whether there is something to tell.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }

    /// Whether there is something to tell and nobody at it: then the caller is, and has to [`Notices::tell`].
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.state.lock();
        let begun = !state.telling && !state.waiting.is_empty();
        state.telling |= begun;
        begun
    }

    /// Tells everything, also what is left meanwhile.
    pub(crate) fn tell(&self) {
        while let Some(notice) = self.next() {
            // A waker's panic was reported by the panic hook, and says nothing about the device.
            drop(contained(|| self.sink.notice(notice)));
        }
    }

    fn next(&self) -> Option<Notice> {
        let mut state = self.state.lock();
        let next = state.waiting.pop_front();
        state.telling = next.is_some();
        next
    }
}
