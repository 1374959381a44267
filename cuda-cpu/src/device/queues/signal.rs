//! A signal, by which an application thread waits until a queue has completed a number.

use std::thread;

use parking_lot::{Condvar, Mutex};

/// The number of times that a waiting thread yields before it sleeps.
const YIELDS: u32 = 32;

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
        // Waking a sleeping thread takes longer than most items.
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
