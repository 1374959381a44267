//! A stream: work in order, run by whichever of the [`pumps`](super::pumps) is free.
//!
//! # Who may touch what
//! At most one thread *pumps* a queue: the one that set `pumped`. It takes work out under the lock and runs it
//! without. A pump that meets a signal that has not fired leaves the work in front, and `pumped` set; firing
//! the signal starts a new pump. So work runs in order, never twice at a time, and no thread blocks. A panic
//! in work is contained in [`Work::run`], so a pump always comes to its end.

use std::{collections::VecDeque, sync::Arc};

use cuda_core::StreamId;
use parking_lot::Mutex;

use super::{backend::Shared, work::Work};

/// Work that a pump does before it lets other queues have the thread.
const TURN: usize = 16;

pub(crate) struct Queue {
    pub(crate) id: StreamId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// With the epoch (see [`lost`](super::lost)) that it was enqueued in.
    work: VecDeque<(Work, u64)>,
    pumped: bool,
}

impl Queue {
    pub(crate) fn new(id: StreamId) -> Arc<Self> {
        Arc::new(Self { id, state: Mutex::default() })
    }

    /// Adds work of this epoch at the end.
    pub(crate) fn push(self: &Arc<Self>, work: Work, epoch: u64, shared: &Arc<Shared>) {
        let mut state = self.state.lock();
        state.work.push_back((work, epoch));
        if !std::mem::replace(&mut state.pumped, true) {
            drop(state);
            self.start(shared);
        }
    }

    /// Whether it has run everything.
    pub(crate) fn is_idle(&self) -> bool {
        !self.state.lock().pumped
    }

    /// Starts a pump; `pumped` is set.
    pub(crate) fn start(self: &Arc<Self>, shared: &Arc<Shared>) {
        shared.pumps.start(self.clone(), shared.clone());
    }

    /// Called by the pumps alone, once for every `start`.
    pub(crate) fn pump(self: Arc<Self>, shared: &Arc<Shared>) {
        for _ in 0..TURN {
            let Some((work, epoch)) = self.next() else { return };
            if let Work::Wait(signal) = &work {
                let signal = signal.clone();
                self.state.lock().work.push_front((work, epoch));
                if !signal.reached_by(&self) {
                    return;
                }
                self.state.lock().work.pop_front();
                continue;
            }
            work.run(self.id, epoch, shared);
        }
        self.start(shared);
    }

    /// The next work, or the end of this pump.
    fn next(&self) -> Option<(Work, u64)> {
        let mut state = self.state.lock();
        let work = state.work.pop_front();
        state.pumped = work.is_some();
        work
    }
}
