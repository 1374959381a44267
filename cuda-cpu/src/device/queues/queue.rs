//! A stream: a queue of items in order, run by one of the [`pumps`](super::pumps) at a time.
//!
//! # Which thread may touch which field
//! At most one thread *pumps* a queue: the one that set `pumped`. It takes an item out under the lock and runs it
//! without the lock. If an item has to wait (for a ticket of another queue, for memory, or for a delay), the pump
//! leaves it in front, with `pumped` set. The event that the item waits for starts a new pump. Items therefore run in
//! order, one at a time, and no thread blocks. [`QueueItem::run`] catches a panic in an item, so a pump always ends.
//! `complete` grows only after the item's failure, if any, was reported.
//!
//! An item stays in its queue until it begins, because the search for dead work has to see every item that has not
//! begun. This search holds the locks of all queues, which it takes in the order of the streams' ids. No other code holds
//! the locks of two queues.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::mem;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cuda_core::{internals::IdMap, protocol::StreamId};
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;

use super::pumps::{Pumped, Pumps, Signal};
use super::timing::{Pace, Timer, Timing};
use crate::device::items::dead_work;
use crate::device::items::work::{Cancelled, QueueItem, Work};
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
    items: VecDeque<Queued>,
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

/// An item that has not begun.
struct Queued {
    item: QueueItem,
    after: After,
    /// Its position among the items of all queues.
    arrival: u64,
}

/// The next step of a pump.
enum Step {
    /// The first item waits for these items and for promised memory, if there are any.
    Begin(After, Option<u64>),
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
        let frees = matches!(item.work, Work::Free { .. });
        let arrival = shared.arrivals.fetch_add(1, Ordering::Relaxed);
        state.items.push_back(Queued { item, after, arrival });
        if frees {
            shared.dead_work.changed();
        }
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

    /// Records that no caller waits for these submissions, or reads the host memory of the downloads among them if
    /// `downloads`. Those that have begun are not affected.
    pub(crate) fn cancel(&self, numbers: RangeInclusive<u64>, downloads: bool, shared: &Shared) {
        let mut state = self.state.lock();
        for Queued { item, .. } in state.items.iter_mut().rev() {
            match item.number {
                Some(number) if number < *numbers.start() => break,
                Some(number) if number <= *numbers.end() => item.cancel(downloads),
                _ => {}
            }
        }
        shared.dead_work.changed();
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
        let state = &mut *state;
        let Some(first) = state.items.front() else {
            state.pumped = false;
            return Step::End;
        };
        if let Some(delay) = state.pace.as_mut().and_then(Pace::hold) {
            return Step::Hold(delay);
        }
        Step::Begin(first.after.clone(), first.item.promised())
    }

    /// Whether these items have run and promised memory is available. If not, a later pump continues the queue.
    fn is_ready(self: &Arc<Self>, after: &After, promised: Option<u64>, shared: &Shared) -> bool {
        let memory = &shared.device.memory;
        after.iter().all(|(producer, number)| producer.check_or_follow(*number, self))
            && promised.is_none_or(|address| {
                shared.has_memory_or_wait(self, || memory.has_room_for(address))
            })
    }

    /// Takes out the first item, which can run.
    fn take_first(&self, shared: &Shared) -> Option<QueueItem> {
        let may_be_dead = |state: &State| {
            state.items.front().is_some_and(|Queued { item, .. }| {
                item.cancelled != Cancelled::Dead && item.may_be_skipped(&shared.device)
            })
        };
        let mut state = self.state.lock();
        if may_be_dead(&state) && shared.dead_work.is_due() {
            drop(state);
            shared.find_dead_work();
            state = self.state.lock();
        }
        state.items.pop_front().map(|first| first.item)
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
                Step::Begin(after, promised) => {
                    if !self.is_ready(&after, promised, shared) {
                        return;
                    }
                    let Some(item) = self.take_first(shared) else { return };
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
    /// The streams of the client.
    pub(crate) streams: RwLock<IdMap<StreamId, Arc<Queue>>>,
    /// Streams that were retired before they had run all items. Locked after `streams`.
    pub(crate) leftover: Mutex<Vec<Arc<Queue>>>,
    /// The number of items that were added to queues.
    arrivals: AtomicU64,
    dead_work: DeadWork,
}

/// The searches for dead work.
#[derive(Default)]
struct DeadWork {
    /// The number of cancelled ranges and of frees. Only these make an item dead.
    changes: AtomicU64,
    /// The changes before the last search.
    searched: AtomicU64,
    /// Held during a search, and locked before any queue.
    search: Mutex<()>,
}

impl DeadWork {
    /// Counts a change, after the change was made.
    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Whether a search may find items that the last one did not find.
    fn is_due(&self) -> bool {
        self.searched.load(Ordering::Acquire) != self.changes.load(Ordering::Acquire)
    }
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
        let (memory_waiters, streams, leftover, arrivals, dead_work) = Default::default();
        Self { device, pumps, clock, memory_waiters, streams, leftover, arrivals, dead_work }
    }

    /// Marks all dead items, unless another thread has done so since the last change. Takes time in proportion to the
    /// number of items that have not begun, which the client's credit limits.
    fn find_dead_work(&self) {
        let DeadWork { changes, searched, search } = &self.dead_work;
        let _search = search.lock();
        if !self.dead_work.is_due() {
            return;
        }
        let changes = changes.load(Ordering::Acquire);
        // Held until all queues are locked: an item of a stream that is created later arrives after every free that this
        // search sees.
        let (streams, leftover) = (self.streams.read(), self.leftover.lock());
        let mut queues: Vec<_> = streams.values().chain(leftover.iter()).collect();
        queues.sort_unstable_by_key(|queue| queue.id);
        let mut states: Vec<_> = queues.iter().map(|queue| queue.state.lock()).collect();
        let mut items: Vec<_> = states.iter_mut().flat_map(|state| &mut state.items).collect();
        items.sort_unstable_by_key(|queued| Reverse(queued.arrival));
        dead_work::mark(items.into_iter().map(|queued| &mut queued.item), &self.device);
        // Stored before the queues are unlocked, so that no pump takes an item that this search has not marked yet.
        searched.store(changes, Ordering::Release);
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
