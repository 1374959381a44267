//! The wide connections of a tenant ([`transport::widen`]): those with the windows of one that serves a lease.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU32, Ordering},
};

use cuda_lease::internals::transport;
use parking_lot::Mutex;

use super::counted::Counted;

/// The wide connections of a tenant that have ended and give their places to the next ones.
const ENDED: u32 = 2;

/// The wide connections of a tenant. It has as many as leases, and one for a client that connects again before its earlier
/// connection has ended. Connections of sessions have as many of their own: others keep their places while they are idle,
/// and the renewals of a session wait behind its uploads on a narrow connection.
///
/// A wide connection cannot become narrow again, so the node closes those that are too many after the end of a lease.
#[derive(Default)]
pub(super) struct WideConnections {
    of_sessions: Places,
    others: Places,
    ended: Arc<AtomicU32>,
}

#[derive(Default)]
struct Places {
    /// The open ones, and those that have ended and keep their places.
    count: Arc<AtomicU32>,
    /// The open ones, in the order in which they became wide.
    open: Mutex<Vec<Weak<Width>>>,
}

/// Whether a connection is wide, and the streams of leases that it serves now.
pub(super) struct Width {
    connection: quinn::Connection,
    state: Mutex<State>,
    sessions: Arc<AtomicU32>,
    other_streams: Arc<AtomicU32>,
}

#[derive(Default)]
struct State {
    /// Whether a stream of the connection has used memory of a lease.
    is_wanted: bool,
    /// Whether the connection has served a session.
    has_session: bool,
    /// The place among the wide connections of the tenant, until the memory of the connection is free.
    place: Option<Counted>,
}

impl WideConnections {
    /// Makes a connection wide if a stream needs that and there is a place. A client that connects again does so before the
    /// places of its earlier connections are free. `leases` returns the number of the tenant's leases.
    pub(super) fn widen(&self, width: &Arc<Width>, leases: impl FnOnce() -> usize) {
        let mut state = width.state.lock();
        if !state.is_wanted || state.place.is_some() {
            return;
        }
        let places = if state.has_session { &self.of_sessions } else { &self.others };
        let mut open = places.open.lock();
        state.place = places.take(leases());
        if state.place.is_some() {
            open.retain(|other| other.strong_count() > 0);
            open.push(Arc::downgrade(width));
            transport::widen(&width.connection);
        }
    }

    /// Closes the open connections that are too many for the leases of the tenant: first those that serve no stream of a
    /// lease, last those with a session. There are as many places as leases, and a lease has one session, so those with a
    /// session of a lease stay. A client whose connection ends connects again when it needs one.
    ///
    /// A later call counts no connection that an earlier one has closed.
    pub(super) fn close_surplus(&self, leases: impl Fn() -> usize) {
        for places in [&self.of_sessions, &self.others] {
            // Locked until the end: a connection that becomes wide for a new lease finds this lease in the limit.
            let open = places.open.lock();
            let is_open = |of: &Arc<Width>| of.connection.close_reason().is_none();
            let mut by_use: Vec<_> =
                open.iter().filter_map(Weak::upgrade).filter(is_open).collect();
            by_use.sort_by_key(|width| width.in_use());
            let surplus = by_use.len().saturating_sub(limit(leases()));
            by_use.iter().take(surplus).for_each(|width| width.close());
        }
    }

    /// Counts a wide connection that has ended, until its memory is free. A client that connects again and again has wide
    /// connections all the same: [`ENDED`] that have ended give their places to the next ones.
    pub(super) fn end(&self, place: Counted) -> Counted {
        Counted::below(&self.ended, ENDED).unwrap_or(place)
    }
}

impl Places {
    fn take(&self, leases: usize) -> Option<Counted> {
        Counted::below(&self.count, limit(leases).try_into().unwrap_or(u32::MAX))
    }
}

/// The number of wide connections of a kind that a tenant with this number of leases may have.
fn limit(leases: usize) -> usize {
    leases.saturating_add(1)
}

impl Width {
    pub(super) fn new(connection: quinn::Connection) -> Arc<Self> {
        let (state, sessions, other_streams) = Default::default();
        Arc::new(Self { connection, state, sessions, other_streams })
    }

    /// A stream of the connection uses memory of a lease, in a session or not.
    pub(super) fn want(&self, of_session: bool) {
        let mut state = self.state.lock();
        state.is_wanted = true;
        state.has_session |= of_session;
    }

    /// Counts a session that the connection serves, until the returned value is dropped.
    pub(super) fn serve_session(&self) -> Counted {
        Counted::new(&self.sessions)
    }

    /// Counts another stream of a lease, until the returned value is dropped.
    pub(super) fn serve_stream(&self) -> Counted {
        Counted::new(&self.other_streams)
    }

    /// Whether the connection serves a session, then whether it serves another stream of a lease.
    fn in_use(&self) -> (bool, bool) {
        let is_served = |count: &AtomicU32| count.load(Ordering::Relaxed) > 0;
        (is_served(&self.sessions), is_served(&self.other_streams))
    }

    fn close(&self) {
        let reason =
            "the tenant has more connections with large windows than leases; connect again";
        tracing::debug!(peer = %self.connection.remote_address(), reason, "a client was disconnected");
        self.connection.close(transport::CONNECT_AGAIN, reason.as_bytes());
    }

    /// Takes the place of a connection that has ended.
    pub(super) fn take_place(&self) -> Option<Counted> {
        self.state.lock().place.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_connections_of_a_tenant_are_limited_by_its_leases() {
        let (a, b) = (WideConnections::default(), WideConnections::default());
        let (first, _second) = (a.others.take(1).unwrap(), a.others.take(1).unwrap());
        assert!(a.others.take(1).is_none());
        assert!(a.others.take(2).is_some() && b.others.take(1).is_some());
        // Sessions have places of their own.
        let _sessions = (a.of_sessions.take(1).unwrap(), a.of_sessions.take(1).unwrap());
        assert!(a.of_sessions.take(1).is_none());
        drop(first);
        assert!(a.others.take(1).is_some());
    }
}
