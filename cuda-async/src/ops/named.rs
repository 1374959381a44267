//! `named`: gives an operation a name in `tracing`.

use std::task::{Context, Poll};

use cuda_core::Result;

use crate::{
    context::ExecutionContext,
    op::{OpSpan, Submit, Submitted},
};

/// The steps of [`DeviceOp::named`](crate::ops::DeviceOp::named).
#[derive(Clone)]
pub struct Named<S> {
    steps: S,
    name: &'static str,
    /// Begins at the first poll.
    span: Option<OpSpan>,
}

impl<S> Named<S> {
    pub(crate) const fn new(steps: S, name: &'static str) -> Self {
        Self { steps, name, span: None }
    }
}

impl<S: Submit> Submit for Named<S> {
    type Output = S::Output;

    #[inline]
    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        let Self { steps, name, span } = self;
        let poll = || steps.poll_submit(task, cx);
        let polled = span.get_or_insert_with(|| OpSpan::of_named(name)).in_scope(poll);
        if polled.is_ready() {
            *span = None;
        }
        polled
    }

    #[inline]
    fn submit_now(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Submitted<Self> {
        let Self { steps, name, span } = self;
        let span = span.unwrap_or_else(|| OpSpan::of_named(name));
        let submitted = span.in_scope(|| steps.submit_now(task, cx));
        submitted.map_err(|steps| Self { steps, name, span: Some(span) })
    }

    fn nested_boxes(&self) -> usize {
        self.steps.nested_boxes()
    }
}
