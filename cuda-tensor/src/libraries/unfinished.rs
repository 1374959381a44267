//! `Unfinished`: a call of a library on a thread of its own, for which the exit of the process waits.
//!
//! At the exit, the destructors of the library and of the driver run. A thread that is inside of them then crashes the
//! process.

use std::{sync::Once, time::Duration};

use parking_lot::{Condvar, Mutex};

/// The longest wait of the exit. A call that waits for a GPU that has stopped never ends.
const MAX_WAIT: Duration = Duration::from_secs(5);

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// Counts as a call until it is dropped.
pub(super) struct Unfinished(());

impl Unfinished {
    /// Begins a call. The library is loaded already, so its destructors come after the wait.
    pub(super) fn begin() -> Self {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(wait_at_exit);
        *RUNNING.lock() += 1;
        Self(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        *RUNNING.lock() -= 1;
        ENDED.notify_all();
    }
}

#[cfg(target_os = "linux")]
fn wait_at_exit() {
    extern "C" fn wait() {
        ENDED.wait_while_for(&mut RUNNING.lock(), |running| *running > 0, MAX_WAIT);
    }
    // Without the handler, the exit does not wait.
    // SAFETY: the handler is a function of the program, and does not panic.
    _ = unsafe { libc::atexit(wait) };
}

#[cfg(not(target_os = "linux"))]
fn wait_at_exit() {}
