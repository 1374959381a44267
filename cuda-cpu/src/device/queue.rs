//! A stream: work in order, run by whichever of the [`pumps`](super::pumps) is free.
//!
//! # Who may touch what
//! At most one thread *pumps* a queue: the one that set `pumped`. It takes work out under the lock and runs it
//! without. A pump that meets work whose time has not come (a signal that has not fired, memory for which there is
//! no room, a delay) leaves it in front, and `pumped` set; whatever it waits for starts a new pump. So work
//! runs in order, never twice at a time, and no thread blocks. A panic in work is contained in
//! [`Work::run`], so a pump always comes to its end.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use cuda_core::{Notice, StreamId};
use parking_lot::Mutex;

use super::{
    backend::{Due, Shared},
    signal::Signal,
    timing::{Pace, Timing},
    work::Work,
};

/// Work that a pump does before it lets other queues have the thread.
const TURN: usize = 16;

pub(crate) struct Queue {
    id: StreamId,
    state: Mutex<State>,
}

struct State {
    /// With the epoch (see [`lost`](super::lost)) that it was enqueued in.
    work: VecDeque<(Work, u64)>,
    pumped: bool,
    pace: Option<Pace>,
}

/// What a pump does next.
enum Step {
    Run(Work, u64),
    Hold(Duration),
    End,
}

impl Queue {
    pub(crate) fn new(id: StreamId, timing: Timing) -> Arc<Self> {
        let pace = Pace::new(timing, id.0);
        let state = State { work: VecDeque::new(), pumped: false, pace };
        Arc::new(Self { id, state: Mutex::new(state) })
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

    /// Waits until it has run, or skipped, what it has.
    pub(crate) fn finish(self: &Arc<Self>, epoch: u64, shared: &Arc<Shared>) {
        let signal = Arc::new(Signal::default());
        self.push(Work::Record(signal.clone()), epoch, shared);
        // Who waits may as well work: no other thread has to wake up, nor this one afterwards.
        while !signal.has_fired() && shared.pumps.pump_here(self, shared, &signal) {
            // A waker may do anything: not on this thread.
            if shared.notices.are_waiting() {
                shared.pumps.start(None, shared.clone());
            }
        }
        signal.wait();
    }

    /// Whether it has run everything.
    pub(crate) fn is_idle(&self) -> bool {
        !self.state.lock().pumped
    }

    /// Starts a pump; `pumped` is set.
    pub(crate) fn start(self: &Arc<Self>, shared: &Arc<Shared>) {
        shared.pumps.start(Some(self.clone()), shared.clone());
    }

    /// Called once for every `start`. Ends at the latest where there is something to tell, or where `until` has fired.
    pub(crate) fn pump(self: Arc<Self>, shared: &Arc<Shared>, until: Option<&Signal>) {
        for _ in 0..TURN {
            if until.is_some_and(Signal::has_fired) {
                break;
            }
            match self.next() {
                Step::Run(Work::Notify(token), epoch) => {
                    self.notify(token, epoch, shared);
                    break;
                }
                Step::Run(work, epoch) => {
                    let Some(work) = self.when_ready(work, epoch, shared) else { return };
                    work.run(epoch, shared);
                }
                Step::Hold(delay) => {
                    let due = Instant::now() + delay;
                    return shared.clock.push(due, Due::Queue(self, shared.clone()));
                }
                Step::End => return,
            }
        }
        if self.has_more() {
            self.start(shared);
        }
    }

    /// Whether there is more to pump; if not, this pump has ended.
    fn has_more(&self) -> bool {
        let mut state = self.state.lock();
        state.pumped = !state.work.is_empty();
        state.pumped
    }

    fn notify(&self, token: u64, epoch: u64, shared: &Arc<Shared>) {
        let due = self.state.lock().pace.as_mut().map(Pace::notice_due);
        let notice = Notice { stream: self.id, token, status: shared.lost.check_at(epoch) };
        match due {
            Some(due) => shared.clock.push(due, Due::Notice(notice, shared.clone())),
            None => shared.notices.post(notice),
        }
    }

    /// The next work, or the end of this pump.
    fn next(&self) -> Step {
        let mut state = self.state.lock();
        if !state.work.is_empty()
            && let Some(delay) = state.pace.as_mut().and_then(Pace::hold)
        {
            return Step::Hold(delay);
        }
        let work = state.work.pop_front();
        state.pumped = work.is_some();
        work.map_or(Step::End, |(work, epoch)| Step::Run(work, epoch))
    }

    /// The work, if it can run now. If not it is in front again, and this queue is another pump's from then on.
    fn when_ready(self: &Arc<Self>, work: Work, epoch: u64, shared: &Shared) -> Option<Work> {
        let Some(waits) = work.waits() else { return Some(work) };
        self.state.lock().work.push_front((work, epoch));
        if !waits.are_over(self, shared) {
            return None;
        }
        self.state.lock().work.pop_front().map(|(work, _)| work)
    }
}
