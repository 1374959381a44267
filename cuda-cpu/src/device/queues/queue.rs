//! A stream: a queue of items in order, run by one of the [`pumps`](super::pumps) at a time.
//!
//! # Which thread may touch which field
//! At most one thread *pumps* a queue: the one that set `pumped`. It takes an item out under the lock and runs it
//! without the lock. If an item has to wait (for a ticket of another queue, for memory, or for a delay), the pump
//! leaves it in front, with `pumped` set. The event that the item waits for starts a new pump. Items therefore run in
//! order, one at a time, and no thread blocks. [`QueueItem::run`] catches a panic in an item, so a pump always ends.
//! `complete` grows only after the item's failure, if any, was reported.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_core::protocol::StreamId;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::pumps::{Pumped, Pumps, Signal};
use super::timing::{Pace, Timer, Timing};
use crate::device::items::work::QueueItem;
use crate::device::state::DeviceState;

/// The number of items that a pump runs before it releases the thread to other queues.
const TURN: usize = 16;

/// The queues that an item waits for, each with a number.
pub(crate) type After = SmallVec<[(Arc<Queue>, u64); 2]>;

/// A stream of the device: items that run in order.
pub(crate) struct Queue {
    pub(crate) id: StreamId,
    state: Mutex<State>,
}

struct State {
    items: VecDeque<(QueueItem, After)>,
    pumped: bool,
    pace: Option<Pace>,
    /// The number of the last submission that was taken.
    accepted: u64,
    /// The number of the last submission that has run or was skipped.
    complete: u64,
    /// Numbers that a client waits for, in order.
    wanted: VecDeque<u64>,
    /// Queues whose next item waits for a number of this queue.
    followers: Vec<(u64, Arc<Queue>)>,
    /// Signals of application threads that wait for a number.
    signals: Vec<(u64, Arc<Signal>)>,
}

/// The next step of a pump.
enum Step {
    Run(QueueItem, After),
    Hold(Duration),
    End,
}

impl Queue {
    pub(crate) fn new(id: StreamId, timing: Timing) -> Arc<Self> {
        let state = State {
            items: VecDeque::new(),
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

    /// Adds an item at the end. It runs after the items in `after` too.
    pub(crate) fn push(self: &Arc<Self>, item: QueueItem, after: After, shared: &Arc<Shared>) {
        let mut state = self.state.lock();
        state.accepted = item.number.unwrap_or(state.accepted);
        state.items.push_back((item, after));
        if !std::mem::replace(&mut state.pumped, true) {
            drop(state);
            self.start(shared);
        }
    }

    /// Completes a submission that already ran: immediately if the queue is idle, else after all earlier submissions.
    /// `item` creates the item that holds its place in the queue.
    pub(crate) fn complete_immediately(
        self: &Arc<Self>,
        number: u64,
        item: impl FnOnce() -> QueueItem,
        shared: &Arc<Shared>,
    ) {
        {
            let mut state = self.state.lock();
            if !state.pumped && state.items.is_empty() {
                state.accepted = number;
                state.complete = number;
                return;
            }
        }
        self.push(item(), After::new(), shared);
    }

    /// Returns the number up to which all submissions have run or were skipped.
    pub(crate) fn complete(&self) -> u64 {
        self.state.lock().complete
    }

    /// Returns the number of the last submission.
    pub(crate) fn accepted(&self) -> u64 {
        self.state.lock().accepted
    }

    /// Requests a report when `number` is complete.
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

    /// Posts a report of the current progress. Posting happens under the lock, so reported numbers never decrease.
    pub(crate) fn report(&self, shared: &Arc<Shared>) {
        let state = self.state.lock();
        let is_new = shared.device.notices.post(self.id, state.complete);
        drop(state);
        if is_new {
            shared.pumps.start(None, shared.clone());
        }
    }

    /// Blocks the calling thread until `number` has run or was skipped.
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
        // Run items on this thread, so that neither another thread nor this one has to be woken.
        while !signal.has_fired() && shared.pumps.pump_here(self, shared, &signal) {
            // Wakers run arbitrary code, so they do not run on this thread.
            if shared.device.notices.are_waiting() {
                shared.pumps.start(None, shared.clone());
            }
        }
        signal.wait();
    }

    /// Whether `number` has run or was skipped. If not, `follower` is restarted when it has.
    fn check_or_follow(&self, number: u64, follower: &Arc<Queue>) -> bool {
        let mut state = self.state.lock();
        let passed = state.complete >= number;
        if !passed {
            state.followers.push((number, follower.clone()));
        }
        passed
    }

    /// Whether the queue has run all items.
    pub(crate) fn is_idle(&self) -> bool {
        !self.state.lock().pumped
    }

    /// Starts a pump. `pumped` must be set.
    pub(crate) fn start(self: &Arc<Self>, shared: &Arc<Shared>) {
        shared.pumps.start(Some(self.clone()), shared.clone());
    }

    /// Records that all submissions up to `number` have run or were skipped. Returns whether there is a report to
    /// deliver.
    fn pass(self: &Arc<Self>, number: u64, shared: &Arc<Shared>) -> bool {
        let mut state = self.state.lock();
        state.complete = number;
        let due = state.wanted.partition_point(|wanted| *wanted <= number);
        state.wanted.drain(..due);
        let at = if due > 0 { state.pace.as_mut().map(Pace::notice_due) } else { None };
        if due > 0 && at.is_none() {
            shared.device.notices.post(self.id, number);
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

    /// Whether there are more items. If not, this pump has ended.
    fn has_more(&self) -> bool {
        let mut state = self.state.lock();
        state.pumped = !state.items.is_empty();
        state.pumped
    }

    /// Returns the next step of this pump.
    fn next(&self) -> Step {
        let mut state = self.state.lock();
        if !state.items.is_empty()
            && let Some(delay) = state.pace.as_mut().and_then(Pace::hold)
        {
            return Step::Hold(delay);
        }
        let item = state.items.pop_front();
        state.pumped = item.is_some();
        item.map_or(Step::End, |(item, after)| Step::Run(item, after))
    }

    /// Returns the item if it can run now. If not, the item is put back in front, and a later pump continues the queue.
    fn when_ready(
        self: &Arc<Self>,
        item: QueueItem,
        after: After,
        shared: &Shared,
    ) -> Option<QueueItem> {
        let promised = item.promised();
        if after.is_empty() && promised.is_none() {
            return Some(item);
        }
        // Put it back first: the event that it waits for may start another pump immediately.
        self.state.lock().items.push_front((item, after.clone()));
        let memory = &shared.device.memory;
        let is_ready =
            after.iter().all(|(producer, number)| producer.check_or_follow(*number, self))
                && promised.is_none_or(|address| {
                    shared.has_memory_or_wait(self, || memory.has_room_for(address))
                });
        if !is_ready {
            return None;
        }
        self.state.lock().items.pop_front().map(|(item, _)| item)
    }
}

impl Pumped for Queue {
    type Shared = Shared;

    /// Runs items. Called once for every `start`. Ends when there is a report to deliver, or when `until` has fired.
    fn pump(self: Arc<Self>, shared: &Arc<Shared>, until: Option<&Signal>) {
        for _ in 0..TURN {
            if until.is_some_and(Signal::has_fired) {
                break;
            }
            match self.next() {
                Step::Run(item, after) => {
                    let Some(item) = self.when_ready(item, after, shared) else { return };
                    let number = item.number;
                    if item.run(self.id, &shared.device) {
                        shared.memory_freed();
                    }
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

    fn begin_notices(shared: &Shared) -> bool {
        shared.device.notices.begin()
    }

    fn deliver_notices(shared: &Shared) {
        shared.device.notices.deliver();
    }
}

/// State that the queues of a device share.
pub(crate) struct Shared {
    pub(crate) device: DeviceState,
    pub(crate) pumps: Pumps<Queue>,
    /// The timer of adversarial timing.
    pub(crate) clock: Timer<Due>,
    /// Queues that wait for device memory.
    memory_waiters: Mutex<Vec<Arc<Queue>>>,
}

/// A delayed step.
pub(crate) enum Due {
    Queue(Arc<Queue>, Arc<Shared>),
    Report(Arc<Queue>, Arc<Shared>),
}

impl Due {
    fn act(self) {
        match self {
            Due::Queue(queue, shared) => queue.start(&shared),
            Due::Report(queue, shared) => queue.report(&shared),
        }
    }
}

impl Shared {
    pub(crate) fn new(device: DeviceState, pumps: Pumps<Queue>) -> Self {
        let clock = Timer::new("cuda-cpu-clock", Due::act);
        Self { device, pumps, clock, memory_waiters: Mutex::default() }
    }

    /// Restarts the queues that wait for device memory. Called after memory was freed.
    pub(crate) fn memory_freed(self: &Arc<Self>) {
        // Each of them checks again whether there is memory.
        mem::take(&mut *self.memory_waiters.lock()).iter().for_each(|queue| queue.start(self));
    }

    /// Whether memory is available (`room`). If not, [`memory_freed`](Self::memory_freed) restarts `queue`.
    fn has_memory_or_wait(&self, queue: &Arc<Queue>, room: impl Fn() -> bool) -> bool {
        if room() {
            return true;
        }
        let mut waiting = self.memory_waiters.lock();
        // Check again under the lock: memory may have been freed since the first check.
        let room = room();
        if !room {
            waiting.push(queue.clone());
        }
        room
    }
}
