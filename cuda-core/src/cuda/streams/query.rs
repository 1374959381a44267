//! Queries of a stream's status.

use super::DriverStream;
use crate::{
    cuda::{
        context::{Bound, Primary},
        driver::{
            api::EventHandle,
            status::{self, Failed},
        },
    },
    protocol::Result,
    sync::spin_loop,
};

/// The number of queries that a blocking thread makes without a pause. They take about 10 us.
const QUERIES: usize = 64;

/// The number of queries with pauses that a blocking thread makes after that, before it synchronizes. They take about a
/// millisecond. A synchronize spins as well, and takes longer to return: 1 us after a wait of 100 us, 12 us after one
/// of a millisecond.
const LATE_QUERIES: usize = 1024;

/// The length of a pause, in spin-loop hints. Queries take a lock of the driver, so they leave it to other threads most
/// of the time.
const PAUSE: usize = 16;

impl DriverStream {
    /// Whether a query shows that the stream is idle. It is not queried during a foreign call.
    ///
    /// # Errors
    /// The error that lost the device.
    #[inline]
    pub(crate) fn is_idle(&self, primary: &Primary, _: &Bound) -> Result<bool> {
        // SAFETY: the caller holds the stream (rule 3).
        let query = || unsafe { primary.api.stream_query(self.raw) };
        self.unless_foreign(query).map_or(Ok(false), |status| is_ready(status, primary))
    }

    /// Queries the stream until it is idle, for about a millisecond at most. If the stream has allocated or freed
    /// memory of a pool, this takes 0.1 to 0.2 us less than a synchronize, which also looks at the pool.
    #[inline]
    pub(crate) fn is_soon_idle(&self, primary: &Primary, bound: &Bound) -> Result<bool> {
        let [mode, steady, divisor, limit] = *tuned();
        for query in 0..limit {
            if self.is_idle(primary, bound)? {
                return Ok(true);
            }
            let pause = match mode {
                0 => if query < QUERIES { 1 } else { PAUSE },
                _ => 1 + query.saturating_sub(steady) / divisor,
            };
            (0..pause).for_each(|_| spin_loop());
        }
        Ok(false)
    }

    /// Queries an event of the stream. Returns whether the stream has passed the event's last recording.
    ///
    /// # Errors
    /// The error that lost the device.
    pub(crate) fn has_passed(&self, event: EventHandle, primary: &Primary) -> Result<bool> {
        // SAFETY: the caller holds the stream, which owns the event (rules 3 and 5).
        is_ready(unsafe { primary.api.event_query(event) }, primary)
    }
}

#[inline]
fn is_ready(status: Result<(), Failed>, primary: &Primary) -> Result<bool> {
    match status {
        Ok(()) => Ok(true),
        Err(Failed { code: status::NOT_READY, .. }) => Ok(false),
        Err(failed) => {
            let error = primary.state_error(failed);
            if primary.is_lost() { Err(error) } else { Ok(false) }
        }
    }
}

fn tuned() -> &'static [usize; 4] {
    static T: std::sync::OnceLock<[usize; 4]> = std::sync::OnceLock::new();
    T.get_or_init(|| match std::env::var("CUDA_WAIT") {
        Ok(v) => { let mut it = v.split(',').map(|x| x.parse().unwrap()); std::array::from_fn(|_| it.next().unwrap()) }
        Err(_) => [0, QUERIES, 1, QUERIES + LATE_QUERIES],
    })
}
