//! `RunMode`: the kind of waits in a run. `InFlight` counts the runs that wait by wakers.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The kind of waits in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunMode {
    /// A future runs the operation. Every wait registers a waker.
    Async,
    /// A thread runs the operation and blocks. It asks the device directly.
    Blocking,
    /// The operation is submitted only, or recorded. No step may wait.
    Detached,
}

static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);

/// Counts a run that waits by wakers and has not ended: a future that has begun, or a blocking run from its first wait
/// by a waker on. A forgotten future counts until the process ends.
pub(crate) struct InFlight(());

impl InFlight {
    #[inline]
    pub(crate) fn new() -> Self {
        IN_FLIGHT.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    /// Whether the process has exactly one such run.
    #[inline]
    pub(in crate::context) fn is_only_one() -> bool {
        IN_FLIGHT.load(Ordering::Relaxed) == 1
    }
}

impl Drop for InFlight {
    #[inline]
    fn drop(&mut self) {
        IN_FLIGHT.fetch_sub(1, Ordering::Relaxed);
    }
}
