//! A stream: a queue of jobs in order, run by one of the [`pumps`](super::pumps) at a time.
//!
//! # Which thread may touch which field
//! At most one thread *pumps* a queue: the one that set `pumped`. It takes a job out under the lock and runs it without.
//! A pump that meets a job whose time has not come (a ticket of another queue, memory for which there is no room, a
//! delay) leaves it in front, with `pumped` set; the event that it waits for starts a new pump. So jobs run in order,
//! never two at a time, and no thread blocks. A panic in a job is contained in [`Job::run`], so a pump always ends.
//! `complete` grows only after the job's failure, if any, was reported.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use cuda_core::protocol::StreamId;
use parking_lot::Mutex;

use super::{
    backend::{Due, Shared},
    job::Job,
    signal::Signal,
    timing::{Pace, Timing},
};

/// Jobs that a pump runs before it lets other queues have the thread.
const TURN: usize = 16;

pub(crate) struct Queue {
    pub(crate) id: StreamId,
    state: Mutex<State>,
}

struct State {
    jobs: VecDeque<Job>,
    pumped: bool,
    pace: Option<Pace>,
    /// The number of the last submission that was taken.
    accepted: u64,
    /// The number of the last submission that has run or was skipped.
    complete: u64,
    /// Numbers that a client waits for, in order.
    wanted: VecDeque<u64>,
    /// Queues whose next job comes after a number of this one.
    followers: Vec<(u64, Arc<Queue>)>,
    /// Threads of the application that wait for a number.
    signals: Vec<(u64, Arc<Signal>)>,
}

/// The next step of a pump.
enum Step {
    Run(Job),
    Hold(Duration),
    End,
}

impl Queue {
    pub(crate) fn new(id: StreamId, timing: Timing) -> Arc<Self> {
        let state = State {
            jobs: VecDeque::new(),
            pumped: false,
            pace: Pace::new(timing, id.0),
            accepted: 0,
            complete: 0,
            wanted: VecDeque::new(),
            followers: Vec::new(),
            signals: Vec::new(),
        };
        Arc::new(Self { id, state: Mutex::new(state) })
    }

    /// Adds a job at the end.
    pub(crate) fn push(self: &Arc<Self>, job: Job, shared: &Arc<Shared>) {
        let mut state = self.state.lock();
        state.accepted = job.number.unwrap_or(state.accepted);
        state.jobs.push_back(job);
        if !std::mem::replace(&mut state.pumped, true) {
            drop(state);
            self.start(shared);
        }
    }

    /// Counts a submission that was carried out at once. It completes when everything before it has.
    pub(crate) fn count(
        self: &Arc<Self>,
        number: u64,
        job: impl FnOnce() -> Job,
        shared: &Arc<Shared>,
    ) {
        {
            let mut state = self.state.lock();
            if !state.pumped && state.jobs.is_empty() {
                state.accepted = number;
                state.complete = number;
                return;
            }
        }
        self.push(job(), shared);
    }

    /// The number up to which everything has run or was skipped.
    pub(crate) fn complete(&self) -> u64 {
        self.state.lock().complete
    }

    /// The number of the last submission.
    pub(crate) fn accepted(&self) -> u64 {
        self.state.lock().accepted
    }

    /// A client waits for `number`: its completion is reported.
    pub(crate) fn want(self: &Arc<Self>, number: u64, shared: &Arc<Shared>) {
        let mut state = self.state.lock();
        if state.complete >= number {
            drop(state);
            return self.report(shared);
        }
        let place = state.wanted.partition_point(|wanted| *wanted < number);
        if state.wanted.get(place) != Some(&number) {
            state.wanted.insert(place, number);
        }
    }

    /// Posts a report of everything that is complete by now. The lock is held meanwhile, so reports never go back.
    pub(crate) fn report(&self, shared: &Arc<Shared>) {
        let state = self.state.lock();
        shared.notices.post(self.id, state.complete);
        drop(state);
        shared.pumps.start(None, shared.clone());
    }

    /// Blocks until `number` has run or was skipped.
    pub(crate) fn wait(self: &Arc<Self>, number: u64, shared: &Arc<Shared>) {
        let signal = {
            let mut state = self.state.lock();
            if state.complete >= number {
                return;
            }
            let signal = Arc::new(Signal::default());
            state.signals.push((number, signal.clone()));
            signal
        };
        // This thread may as well run jobs: then no other has to wake up, nor this one afterwards.
        while !signal.has_fired() && shared.pumps.pump_here(self, shared, &signal) {
            // A waker may do anything, so it does not run on this thread.
            if shared.notices.are_waiting() {
                shared.pumps.start(None, shared.clone());
            }
        }
        signal.wait();
    }

    /// Whether `number` has run or was skipped. If not, `follower` is started again when it has.
    pub(crate) fn has_passed(&self, number: u64, follower: &Arc<Queue>) -> bool {
        let mut state = self.state.lock();
        let passed = state.complete >= number;
        if !passed {
            state.followers.push((number, follower.clone()));
        }
        passed
    }

    /// Whether it has run everything.
    pub(crate) fn is_idle(&self) -> bool {
        !self.state.lock().pumped
    }

    /// Starts a pump. `pumped` is set.
    pub(crate) fn start(self: &Arc<Self>, shared: &Arc<Shared>) {
        shared.pumps.start(Some(self.clone()), shared.clone());
    }

    /// Called once for every `start`. Ends at the latest where there is a report to deliver, or where `until` has fired.
    pub(crate) fn pump(self: Arc<Self>, shared: &Arc<Shared>, until: Option<&Signal>) {
        for _ in 0..TURN {
            if until.is_some_and(Signal::has_fired) {
                break;
            }
            match self.next() {
                Step::Run(job) => {
                    let Some(job) = self.when_ready(job, shared) else { return };
                    let number = job.number;
                    job.run(self.id, shared);
                    if number.is_some_and(|number| self.pass(number, shared)) {
                        break;
                    }
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

    /// Everything up to `number` has run or was skipped. Returns whether there is a report to deliver.
    fn pass(self: &Arc<Self>, number: u64, shared: &Arc<Shared>) -> bool {
        let mut state = self.state.lock();
        state.complete = number;
        let due = state.wanted.partition_point(|wanted| *wanted <= number);
        state.wanted.drain(..due);
        let at = if due > 0 { state.pace.as_mut().map(Pace::notice_due) } else { None };
        if due > 0 && at.is_none() {
            shared.notices.post(self.id, number);
        }
        let is_due = |entry: &u64| *entry <= number;
        let followers: Vec<_> = state.followers.extract_if(.., |(at, _)| is_due(at)).collect();
        let signals: Vec<_> = state.signals.extract_if(.., |(at, _)| is_due(at)).collect();
        drop(state);
        if let Some(at) = at {
            shared.clock.push(at, Due::Report(self.clone(), shared.clone()));
        }
        followers.iter().for_each(|(_, queue)| queue.start(shared));
        signals.iter().for_each(|(_, signal)| signal.fire());
        due > 0
    }

    /// Whether there is more to pump. If not, this pump has ended.
    fn has_more(&self) -> bool {
        let mut state = self.state.lock();
        state.pumped = !state.jobs.is_empty();
        state.pumped
    }

    /// The next job, or the end of this pump.
    fn next(&self) -> Step {
        let mut state = self.state.lock();
        if !state.jobs.is_empty()
            && let Some(delay) = state.pace.as_mut().and_then(Pace::hold)
        {
            return Step::Hold(delay);
        }
        let job = state.jobs.pop_front();
        state.pumped = job.is_some();
        job.map_or(Step::End, Step::Run)
    }

    /// The job, if it can run now. If not it is in front again, and the queue belongs to another pump from then on.
    fn when_ready(self: &Arc<Self>, job: Job, shared: &Shared) -> Option<Job> {
        if job.is_always_ready() {
            return Some(job);
        }
        let waits = job.waits();
        self.state.lock().jobs.push_front(job);
        if !waits.are_over(self, shared) {
            return None;
        }
        self.state.lock().jobs.pop_front()
    }
}
