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

/// The number of queries that a blocking thread makes before it synchronizes. They take about 7 ms. A synchronize spins
/// as well, and takes longer to return: 0.2 us after a wait of 10 us, up to 12 us after one of a millisecond.
const QUERIES: usize = 4096;

/// The number of queries after which the pause between two of them is one spin-loop hint longer. Queries take a lock of
/// the driver, so a long wait leaves it to other threads most of the time. A pause is 0.2 percent of the wait before it
/// at most, so it delays the caller by no more than that.
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

    /// Queries the stream until it is idle, for about 7 ms at most.
    #[inline]
    pub(crate) fn is_soon_idle(&self, primary: &Primary, bound: &Bound) -> Result<bool> {
        for query in 0..QUERIES {
            if self.is_idle(primary, bound)? {
                return Ok(true);
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
