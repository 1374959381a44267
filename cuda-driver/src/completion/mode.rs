//! The option of a device that chooses how it reports progress.

use std::time::Duration;

/// The way in which a CUDA device reports progress. In both, a thread of the device learns that work is complete, and
/// wakes the waiting tasks. With nothing in flight it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completion {
    /// An event is recorded behind the work, and the completion thread queries it. The stream is not delayed, and the
    /// wake comes some microseconds after the work. The default.
    Polled {
        /// The time for which the thread spins after a report, or after a new request for one. Then it sleeps between
        /// checks. Each sleep lasts 1/64 of the time waited so far, limited to 5 to 60 us. In waits longer than 15 ms it
        /// lasts 1/256 of that time. While reports are closer together than `spin`, the thread keeps a core busy.
        spin: Duration,
    },
    /// The driver calls a host function on its own thread, and the function wakes the completion thread. No thread
    /// spins. A wake takes about 20 us more, and the stream runs no work while the function runs.
    HostFunction,
}

impl Default for Completion {
    /// Returns [`Polled`](Completion::Polled) with a spin of 500 us, or of 20 us with fewer than four cores.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = Duration::from_micros(if cores < 4 { 20 } else { 500 });
        Self::Polled { spin }
    }
}
