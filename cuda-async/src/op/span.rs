//! `OpSpan`: a span of `tracing`, with the feature `spans`. Without it, the span is empty and its methods do nothing.

use crate::context::ExecutionContext;

/// The span of a run or of a named operation. Clones are the same span.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpSpan(#[cfg(feature = "spans")] Option<tracing::Span>);

impl OpSpan {
    /// The span of a run. It ends when the last clone is dropped.
    #[inline(always)]
    pub(crate) fn of_run(cx: &ExecutionContext) -> Self {
        #[cfg(feature = "spans")]
        return Self(enabled::span_of_run(cx));
        #[cfg(not(feature = "spans"))]
        {
            let _ = cx;
            Self()
        }
    }

    /// The span of a named operation.
    #[inline(always)]
    pub(crate) fn of_named(name: &'static str) -> Self {
        #[cfg(feature = "spans")]
        return Self(enabled::span_of_named(name));
        #[cfg(not(feature = "spans"))]
        {
            let _ = name;
            Self()
        }
    }

    /// Calls `run` inside the span.
    #[inline(always)]
    pub(crate) fn in_scope<T>(&self, run: impl FnOnce() -> T) -> T {
        #[cfg(feature = "spans")]
        if let Some(span) = &self.0 {
            return span.in_scope(run);
        }
        run()
    }
}

#[cfg(feature = "spans")]
mod enabled {
    use tracing::{Span, debug_span};

    use crate::context::ExecutionContext;

    const TARGET: &str = "cuda_async";

    /// `None` if the span is disabled, so that the run does not store one.
    #[inline]
    pub(super) fn span_of_run(cx: &ExecutionContext) -> Option<Span> {
        let device = || cx.device().info().address.as_str();
        let span = debug_span!(target: TARGET, "run", device = device());
        (!span.is_disabled()).then_some(span)
    }

    #[inline]
    pub(super) fn span_of_named(name: &'static str) -> Option<Span> {
        let span = debug_span!(target: TARGET, "operation", name);
        (!span.is_disabled()).then_some(span)
    }
}
