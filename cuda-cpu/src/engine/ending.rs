//! How a launch ends before all its blocks have run: by the first fault, or by a panic.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::fault::Fault;

/// What the workers of a launch look at between blocks.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    has_come: AtomicBool,
    fault: Mutex<Option<Box<Fault>>>,
}

impl Ending {
    /// Nobody begins anything any more.
    pub(crate) fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }

    /// Keeps the first fault and stops all workers.
    pub(crate) fn report(&self, fault: Fault) {
        self.fault.lock().get_or_insert_with(|| Box::new(fault));
        self.has_come.store(true, Ordering::Relaxed);
    }

    /// What the launch ended with, once all workers have stopped.
    pub(crate) fn fault(&self) -> Result<(), Box<Fault>> {
        self.fault.lock().take().map_or(Ok(()), Err)
    }

    /// Blocks may spin until another one has come somewhere: when the worker that holds this panics, the others stop.
    pub(crate) fn on_panic(&self) -> impl Drop + '_ {
        StopOnPanic(&self.has_come)
    }
}

struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
