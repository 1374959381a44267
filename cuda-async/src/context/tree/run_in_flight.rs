//! `RunInFlight`: counts the runs of the process that wait by wakers.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use cuda_core::internals::sync::shard::{self, Sharded};

static RUNS: Sharded<AtomicUsize> =
    [const { CachePadded::new(AtomicUsize::new(0)) }; shard::SHARDS];

/// Counts a run that waits by wakers and has not ended: a future that has begun, or a blocking run from its first wait
/// by a waker on. A forgotten future counts until the process ends.
pub(crate) struct RunInFlight {
    shard: usize,
}

impl RunInFlight {
    #[inline]
    pub(crate) fn new() -> Self {
        let shard = shard::own_shard();
        RUNS[shard].fetch_add(1, Ordering::Relaxed);
        Self { shard }
    }

    /// Whether the caller's run is the only such run of the process. The counts are read one after the other, so the
    /// result may be wrong while other runs begin or end. Then a poll spins for a short time without need, or does not.
    #[inline]
    pub(in crate::context) fn is_only_one() -> bool {
        // The caller's run is almost always counted in this thread's shard. If this shard counts more than one run, the
        // other shards are not read.
        let own = RUNS[shard::own_shard()].load(Ordering::Relaxed);
        own <= 1 && RUNS.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>() == 1
    }
}

impl Drop for RunInFlight {
    #[inline]
    fn drop(&mut self) {
        RUNS[self.shard].fetch_sub(1, Ordering::Relaxed);
    }
}
