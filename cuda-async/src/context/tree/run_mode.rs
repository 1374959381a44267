//! `RunMode`: the kind of waits in a run. `InFlight` counts the runs that wait by wakers.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use cuda_core::sync::shard::{self, Sharded};

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

static IN_FLIGHT: Sharded<AtomicUsize> =
    [const { CachePadded::new(AtomicUsize::new(0)) }; shard::SHARDS];

/// Counts a run that waits by wakers and has not ended: a future that has begun, or a blocking run from its first wait
/// by a waker on. A forgotten future counts until the process ends.
pub(crate) struct InFlight {
    shard: usize,
}

impl InFlight {
    #[inline]
    pub(crate) fn new() -> Self {
        let shard = shard::own_shard();
        IN_FLIGHT[shard].fetch_add(1, Ordering::Relaxed);
        Self { shard }
    }

    /// Whether the caller's run is the only such run of the process. The counts are read one after the other, so the
    /// result may be wrong while other runs begin or end. Then a poll spins for a short time without need, or does not.
    #[inline]
    pub(in crate::context) fn is_only_one() -> bool {
        // The caller's run is almost always counted in this thread's shard. If that has more, the others need no look.
        let own = IN_FLIGHT[shard::own_shard()].load(Ordering::Relaxed);
        own <= 1 && IN_FLIGHT.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>() == 1
    }
}

impl Drop for InFlight {
    #[inline]
    fn drop(&mut self) {
        IN_FLIGHT[self.shard].fetch_sub(1, Ordering::Relaxed);
    }
}
