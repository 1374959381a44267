//! The queue of resources that were dropped and still have to be given back to the driver.
//!
//! # Rules
//! - The `Drop` of a resource does not call the driver: a driver call may block, and a `Drop` may run inside a poll or
//!   on a driver's thread. A dropped resource goes into this queue instead.
//! - A helper thread gives the resources back. The first resource starts it. It tries again every few milliseconds
//!   while the device still uses some of them, and ends when the queue is empty.
//! - On a lost device resources are leaked: the driver takes nothing back any more.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::OnceLock,
    time::Duration,
};

use cuda_core::internals::sync::{Condvar, HelperThread, Mutex, discard_panic};

use super::{bound::Bound, primary::Primary};

/// A resource of the driver, or one that the device may still use.
pub(crate) trait Reclaimable: Send {
    /// Gives the resource back, or returns it if the device still uses it. Runs on the helper thread. May block.
    ///
    /// If the driver refuses to take a resource back, the resource is leaked. The error is ignored: threads that use a
    /// lost device see its error themselves.
    fn reclaim(
        self: Box<Self>,
        primary: &'static Primary,
        bound: &Bound,
    ) -> Option<Box<dyn Reclaimable>>;

    /// Whether giving it back may wait for unrelated work of the device. Such resources are given back last.
    fn waits_for_device(&self, _: &Primary) -> bool {
        false
    }
}

/// The queue of one device.
#[derive(Default)]
pub(crate) struct ReclaimQueue {
    state: Mutex<State>,
    arrived: Condvar,
    helper: Helper,
    device: OnceLock<&'static Primary>,
}

#[derive(Default)]
struct State {
    dropped: Vec<Box<dyn Reclaimable>>,
    /// Whether the helper thread works on the queue, or is about to.
    is_reclaiming: bool,
}

struct Helper(HelperThread);

impl Default for Helper {
    fn default() -> Self {
        Self(HelperThread::new("cuda-reclaim"))
    }
}

/// The shortest and the longest time between two checks of resources in use. The time doubles after a check that frees
/// none.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(32));

impl ReclaimQueue {
    /// Sets the device. Without one, resources stay in the queue.
    pub(super) fn attach(&self, device: &'static Primary) {
        _ = self.device.set(device);
    }

    /// Takes a resource. Never blocks and calls no driver.
    pub(crate) fn put(&self, item: Box<dyn Reclaimable>) {
        if self.device.get().is_some_and(|device| device.is_lost()) {
            std::mem::forget(item);
            return;
        }
        self.state.lock().dropped.push(item);
        self.hurry();
    }

    /// Makes the helper thread check the queue now. Starts the thread if it does not run.
    pub(crate) fn hurry(&self) {
        let Some(device) = self.device.get().copied() else { return };
        {
            let mut state = self.state.lock();
            if state.is_reclaiming || state.dropped.is_empty() {
                self.arrived.notify_one();
                return;
            }
            state.is_reclaiming = true;
        }
        if self.helper.0.run(|| device.reclaim.work(device)).is_err() {
            // The thread could not be started. The next resource tries again.
            self.state.lock().is_reclaiming = false;
        }
    }

    /// The helper thread's loop.
    fn work(&self, device: &'static Primary) {
        let mut interval = INTERVALS.0;
        loop {
            let items = {
                let mut state = self.state.lock();
                if state.dropped.is_empty() {
                    state.is_reclaiming = false;
                    return;
                }
                std::mem::take(&mut state.dropped)
            };
            let before = items.len();
            let mut busy = give_back(device, items);
            let progress = busy.len() < before;
            let mut state = self.state.lock();
            let arrived = !state.dropped.is_empty();
            busy.append(&mut state.dropped);
            state.dropped = busy;
            interval =
                if progress || arrived { INTERVALS.0 } else { (2 * interval).min(INTERVALS.1) };
            if !arrived && !state.dropped.is_empty() {
                self.arrived.wait_for(&mut state, interval);
            }
        }
    }
}

/// Gives resources back, and returns those that the device still uses.
fn give_back(
    device: &'static Primary,
    mut items: Vec<Box<dyn Reclaimable>>,
) -> Vec<Box<dyn Reclaimable>> {
    let Some(bound) = device.bind_own_thread().ok().filter(|_| !device.is_lost()) else {
        if device.is_lost() {
            std::mem::forget(std::mem::take(&mut items));
        }
        return items;
    };
    items.sort_by_key(|item| item.waits_for_device(device));
    let reclaim = |item: Box<dyn Reclaimable>| {
        if device.is_lost() {
            std::mem::forget(item);
            return None;
        }
        catch_unwind(AssertUnwindSafe(|| item.reclaim(device, &bound))).unwrap_or_else(|payload| {
            discard_panic(payload);
            None
        })
    };
    items.into_iter().filter_map(reclaim).collect()
}

impl std::fmt::Debug for ReclaimQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReclaimQueue")
    }
}
