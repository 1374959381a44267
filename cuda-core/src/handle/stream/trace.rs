//! Events of `tracing`: one for each submission, with the feature `spans`. Without it these functions are empty.

use crate::protocol::{LaunchConfig, Ticket, Work};

#[cfg(feature = "spans")]
const TARGET: &str = "cuda_async::submission";

/// Reports a submission that the device has taken, except a launch: see [`launched`]. Called without locks, because a
/// subscriber is a user's code.
#[inline(always)]
pub(crate) fn submitted(ticket: Ticket, work: &Work<'_>) {
    #[cfg(feature = "spans")]
    events::submitted(ticket, work);
    #[cfg(not(feature = "spans"))]
    let _ = (ticket, work);
}

/// Reports a launch that the device has taken. Called without locks.
#[inline(always)]
pub(crate) fn launched(ticket: Ticket, kernel: &str, config: &LaunchConfig) {
    #[cfg(feature = "spans")]
    events::launched(ticket, kernel, config);
    #[cfg(not(feature = "spans"))]
    let _ = (ticket, kernel, config);
}

/// Reports a replay of a recording, with its last ticket. Called without locks.
#[inline(always)]
pub(crate) fn replayed(last: Ticket, nodes: usize) {
    #[cfg(feature = "spans")]
    tracing::trace!(target: TARGET, stream = last.stream.0, number = last.number, nodes, "replay");
    #[cfg(not(feature = "spans"))]
    let _ = (last, nodes);
}

#[cfg(feature = "spans")]
mod events {
    use tracing::trace;

    use super::TARGET;
    use crate::protocol::{LaunchConfig, Ticket, Work};

    #[inline]
    pub(super) fn submitted(ticket: Ticket, work: &Work<'_>) {
        let (stream, number) = (ticket.stream.0, ticket.number);
        match work {
            Work::Join => trace!(target: TARGET, stream, number, "join"),
            Work::Upload { bytes, .. } => trace!(target: TARGET, stream, number, bytes, "upload"),
            Work::Download { bytes, .. } => {
                trace!(target: TARGET, stream, number, bytes, "download");
            }
            Work::Copy { bytes, .. } => trace!(target: TARGET, stream, number, bytes, "copy"),
            Work::Fill { count, pattern, .. } => {
                let bytes = count.saturating_mul(pattern.bytes());
                trace!(target: TARGET, stream, number, bytes, "fill");
            }
            Work::Send { bytes, .. } => {
                trace!(target: TARGET, stream, number, bytes, "copy to another device");
            }
            Work::Timestamp { .. } => trace!(target: TARGET, stream, number, "timestamp"),
            // `launched` and `replayed` report these.
            Work::Launch(_) | Work::Graph(_) | Work::Repeat(_) | Work::Foreign(_) => {}
        }
    }

    #[inline]
    pub(super) fn launched(ticket: Ticket, kernel: &str, config: &LaunchConfig) {
        let LaunchConfig { grid, block, shared_bytes, .. } = config;
        trace!(
            target: TARGET,
            stream = ticket.stream.0,
            number = ticket.number,
            kernel,
            ?grid,
            ?block,
            shared_bytes,
            "launch"
        );
    }
}
