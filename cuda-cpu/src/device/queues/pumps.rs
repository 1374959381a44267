//! The threads that run queues and deliver notices.
//!
//! They are separate from the threads that run blocks. So a short kernel never waits for a thread that runs a long one,
//! and no stack holds more than one kernel. A thread is started when a queue is ready and all other threads are busy,
//! up to a limit. Idle threads sleep. The thread that delivers notices does not count. An application thread that waits
//! for a queue pumps the queue itself if no pump has started on it, so no other thread has to be woken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::{io, thread};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// The number of times that a thread yields before it sleeps. Work often arrives in quick succession, and waking a
/// sleeping thread takes longer than most items.
const YIELDS: u32 = 32;

/// A queue that a thread pumps.
pub(crate) trait Pumped: Send + Sync + 'static {
    /// State that all queues share.
    type Shared: Send + Sync;

    /// Runs items. Ends when there are no more, when the next item has to wait, after a limited number of items, when
    /// there is a report to deliver, or when `until` has fired. If items are left that can run, the queue is started
    /// again.
    fn pump(self: Arc<Self>, shared: &Arc<Self::Shared>, until: Option<&Signal>);

    /// Whether there are notices to deliver. The caller must then deliver them.
    fn begin_notices(shared: &Self::Shared) -> bool;

    /// Delivers notices.
    fn deliver_notices(shared: &Self::Shared);
}

/// The threads that pump the queues of a device and deliver its notices.
pub(crate) struct Pumps<Q: Pumped>(Arc<Inner<Q>>);

struct Inner<Q: Pumped> {
    state: Mutex<State<Q>>,
    wake: Condvar,
    /// The maximum number of queues that are pumped at the same time.
    most: usize,
}

/// A queue to pump, or `None` if there are only notices to deliver.
type Ready<Q> = (Option<Arc<Q>>, Arc<<Q as Pumped>::Shared>);

struct State<Q: Pumped> {
    ready: VecDeque<Ready<Q>>,
    threads: usize,
    /// The number of threads that wait for a queue.
    idle: usize,
    /// The number of threads that pump.
    pumping: usize,
    /// Whether a thread delivers notices, which may take long.
    delivering: bool,
    closed: bool,
}

impl<Q: Pumped> Pumps<Q> {
    /// Creates the pumps, at most `most` at a time, and starts the first thread.
    pub(crate) fn new(most: usize) -> io::Result<Self> {
        let state = Mutex::new(State {
            ready: VecDeque::new(),
            threads: 1,
            idle: 0,
            pumping: 0,
            delivering: false,
            closed: false,
        });
        let inner = Arc::new(Inner { state, wake: Condvar::new(), most });
        inner.clone().spawn(0)?;
        Ok(Self(inner))
    }

    /// Schedules a thread to pump the queue, or to deliver notices if there is no queue.
    pub(crate) fn start(&self, queue: Option<Arc<Q>>, shared: Arc<Q::Shared>) {
        let mut state = self.0.state.lock();
        state.ready.push_back((queue, shared));
        self.0.call(state);
    }

    /// Pumps a queue on this thread until `until` has fired. Returns `false` if another thread pumps the queue, or if
    /// the maximum number of pumps is reached.
    pub(crate) fn pump_here(
        &self,
        queue: &Arc<Q>,
        shared: &Arc<Q::Shared>,
        until: &Signal,
    ) -> bool {
        let Some(queue) = self.0.take_back(queue) else { return false };
        queue.pump(shared, Some(until));
        let mut state = self.0.state.lock();
        state.pumping -= 1;
        if !state.ready.is_empty() {
            self.0.call(state);
        }
        true
    }
}

impl<Q: Pumped> Drop for Pumps<Q> {
    /// Ends the threads. The caller may be one of them. No queue is ready, because a ready queue holds the owner.
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.wake.notify_all();
    }
}

impl<Q: Pumped> Inner<Q> {
    fn spawn(self: Arc<Self>, index: usize) -> io::Result<()> {
        let name = format!("cuda-cpu-stream-{index}");
        thread::Builder::new().name(name).spawn(move || self.work()).map(drop)
    }

    /// Wakes or starts a thread for the queues that are ready.
    fn call(self: &Arc<Self>, mut state: MutexGuard<'_, State<Q>>) {
        // Wake one even if there are fewer idle threads than queues. A thread that was woken while all slots were taken
        // sleeps again, and no other call wakes it when a slot becomes free.
        if state.idle > 0 {
            self.wake.notify_one();
        }
        let too_few = state.idle < state.ready.len();
        if too_few && state.threads < self.most + usize::from(state.delivering) {
            let index = state.threads;
            state.threads += 1;
            drop(state);
            if self.clone().spawn(index).is_err() {
                // The existing threads run the queue.
                self.state.lock().threads -= 1;
            }
        }
    }

    /// Removes a ready queue and counts the caller as a pump.
    fn take_back(&self, queue: &Arc<Q>) -> Option<Arc<Q>> {
        let mut state = self.state.lock();
        if state.pumping >= self.most {
            return None;
        }
        let same =
            |(ready, _): &Ready<Q>| ready.as_ref().is_some_and(|ready| Arc::ptr_eq(ready, queue));
        let at = state.ready.iter().position(same)?;
        state.pumping += 1;
        state.ready.remove(at)?.0
    }

    fn work(self: Arc<Self>) {
        while let Some((queue, shared)) = self.next() {
            if let Some(queue) = queue {
                queue.pump(&shared, None);
            }
            self.state.lock().pumping -= 1;
            if Q::begin_notices(&shared) {
                self.deliver_notices(&shared);
            }
        }
    }

    /// Delivers notices. Another thread may pump in place of this one until the delivery ends.
    fn deliver_notices(self: &Arc<Self>, shared: &Q::Shared) {
        let mut state = self.state.lock();
        state.delivering = true;
        if !state.ready.is_empty() {
            self.call(state);
        } else {
            drop(state);
        }
        Q::deliver_notices(shared);
        self.state.lock().delivering = false;
    }

    /// Waits for the next queue to pump. Returns `None` when the device is closed.
    fn next(&self) -> Option<Ready<Q>> {
        let mut yields = 0;
        let mut state = self.state.lock();
        state.idle += 1;
        let next = loop {
            if state.pumping < self.most
                && let Some(next) = state.ready.pop_front()
            {
                state.pumping += 1;
                break Some(next);
            }
            if state.closed {
                break None;
            }
            if yields < YIELDS {
                yields += 1;
                drop(state);
                thread::yield_now();
                state = self.state.lock();
            } else {
                self.wake.wait(&mut state);
            }
        };
        state.idle -= 1;
        next
    }
}

/// A flag that fires once and wakes the waiting threads.
#[derive(Default)]
pub(crate) struct Signal {
    fired: Mutex<bool>,
    wake: Condvar,
}

impl Signal {
    pub(crate) fn fire(&self) {
        *self.fired.lock() = true;
        self.wake.notify_all();
    }

    pub(crate) fn has_fired(&self) -> bool {
        *self.fired.lock()
    }

    /// Blocks the calling thread until the signal fires.
    pub(crate) fn wait(&self) {
        for _ in 0..YIELDS {
            if self.has_fired() {
                return;
            }
            thread::yield_now();
        }
        let mut fired = self.fired.lock();
        while !*fired {
            self.wake.wait(&mut fired);
        }
    }
}
