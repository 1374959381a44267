//! Spans of the node. Their trace ids are those of the clients' spans.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

use cuda_lease::{authority::Tenant, wire::TraceContext};
use tracing::{
    Span,
    field::{Empty, display},
    info_span,
};

/// A span, and its place in the trace of the client.
#[derive(Debug, Clone)]
pub(super) struct Traced {
    /// `None` if the client states no trace.
    pub(super) trace: Option<TraceContext>,
    pub(super) span: Span,
}

/// The span of a lease, from its request to its end.
pub(super) fn lease(client: Option<TraceContext>, tenant: &Tenant) -> Traced {
    let span = info_span!(
        "lease",
        trace_id = Empty,
        span_id = Empty,
        parent_span_id = Empty,
        %tenant,
        lease = Empty
    );
    child(span, client)
}

/// The span of a session, inside of the span of its lease.
pub(super) fn session(lease: &Traced, id: u64) -> Traced {
    let span = info_span!(
        parent: &lease.span,
        "session",
        trace_id = Empty,
        span_id = Empty,
        parent_span_id = Empty,
        lease = id
    );
    child(span, lease.trace)
}

/// The span of a stateless submit.
pub(super) fn submit(client: Option<TraceContext>, tenant: &Tenant, lease: u64) -> Traced {
    let span = info_span!(
        "submit",
        trace_id = Empty,
        span_id = Empty,
        parent_span_id = Empty,
        %tenant,
        lease
    );
    child(span, client)
}

/// Gives a span the id of its trace and an id of its own.
fn child(span: Span, parent: Option<TraceContext>) -> Traced {
    let trace = parent.map(|parent| {
        let own = parent.with_span(next_id());
        span.record("trace_id", display(own.trace_id()));
        span.record("span_id", display(own.span_id()));
        span.record("parent_span_id", display(parent.span_id()));
        own
    });
    Traced { trace, span }
}

/// An id that other spans do not have, with high probability. It is no secret.
fn next_id() -> [u8; 8] {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // The standard library keys each state at random.
    RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed)).to_le_bytes()
}
