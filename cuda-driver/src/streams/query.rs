//! Queries of a stream's status.

use cuda_core::{internals::sync::spin_loop, protocol::Result};

use super::DriverStream;
use crate::{
    context::{Bound, Primary},
    driver::{
        api::EventHandle,
        status::{self, Failed},
    },
};

/// The number of queries that a blocking thread makes before it synchronizes. They take about 7 ms. A synchronize also
/// keeps the core busy, and returns later: by 0.2 us after a wait of 10 us, by up to 12 us after one of a millisecond.
/// After 7 ms that is less than 0.2 percent, and a synchronize leaves the driver's lock to other threads.
const QUERIES: usize = 4096;

/// After this number of queries, the pause between two queries grows by one spin-loop hint. A query takes a lock of the
/// driver, so a long wait leaves the lock to other threads most of the time. A pause delays the caller by its own length
/// at most: about one percent of the wait so far after 10 us, and less after longer ones.
const PER_HINT: usize = 64;

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

    /// Queries the stream until it is idle, for about 7 ms at most, and only while `number` is its last submission.
    #[inline]
    pub(crate) fn is_soon_idle(
        &self,
        number: u64,
        primary: &Primary,
        bound: &Bound,
    ) -> Result<bool> {
        for query in 0..QUERIES {
            if self.is_idle(primary, bound)? {
                return Ok(true);
            }
            if self.submitted() != number {
                return Ok(self.completed() >= number);
            }
            (0..=query / PER_HINT).for_each(|_| spin_loop());
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
