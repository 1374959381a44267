//! Spans of the client.
//!
//! `tracing` has no trace ids of its own. So each lease and each stateless submit gets a [`TraceContext`], which is in
//! the fields of its span here and travels to the node.

use cuda_core::Result;
use tracing::{Span, field::Empty, info_span};

use super::random::random;
use crate::wire::TraceContext;

/// Returns the context of a new span, in the trace of `parent` or in a new one.
///
/// # Errors
/// The operating system gives no random numbers.
pub(super) fn next(parent: Option<TraceContext>) -> Result<TraceContext> {
    Ok(match parent {
        Some(parent) => parent.with_span(random()?),
        None => TraceContext::from_random(random()?, random()?),
    })
}

/// The span of a lease, from the request to the end. The current span is its parent.
pub(super) fn lease(trace: Option<&TraceContext>, node: &str) -> Span {
    let span = info_span!("lease", trace_id = Empty, span_id = Empty, node, lease = Empty);
    record(&span, trace);
    span
}

/// The span of a stateless submit. The current span is its parent.
pub(super) fn submit(trace: &TraceContext, node: &str, lease: u64) -> Span {
    let span = info_span!("submit", trace_id = Empty, span_id = Empty, node, lease);
    record(&span, Some(trace));
    span
}

fn record(span: &Span, trace: Option<&TraceContext>) {
    if let Some(trace) = trace {
        span.record("trace_id", tracing::field::display(trace.trace_id()));
        span.record("span_id", tracing::field::display(trace.span_id()));
    }
}
