//! Early end of a launch, by the first fault or by a panic.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::fault::Fault;

/// State of the launch that its workers check between blocks.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    has_ended: AtomicBool,
    fault: Mutex<Option<Box<Fault>>>,
}

impl Ending {
    /// Returns whether the launch has ended early. Workers then start no further turn.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Keeps the first fault and stops all workers.
    pub(crate) fn report(&self, fault: Fault) {
        self.fault.lock().get_or_insert_with(|| Box::new(fault));
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Returns the fault that ended the launch, if any. Called after all workers have stopped.
    pub(crate) fn fault(&self) -> Result<(), Box<Fault>> {
        self.fault.lock().take().map_or(Ok(()), Err)
    }

    /// Returns a guard that stops the other workers if its thread panics. Otherwise their blocks could spin without
    /// end, waiting for a block of this worker.
    pub(crate) fn on_panic(&self) -> impl Drop + '_ {
        StopOnPanic(&self.has_ended)
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
