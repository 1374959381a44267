//! `named`: gives an operation a name in recordings, in errors and in `tracing`.

use std::task::{Context, Poll};

use cuda_core::{Error, Result};

use crate::{
    context::{ExecutionContext, RunMode},
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
        let _recorded = cx.name_recorded(name);
        let poll = || steps.poll_submit(task, cx);
        let polled = span.get_or_insert_with(|| OpSpan::of_named(name)).in_scope(poll);
        if polled.is_pending() {
            check_pending(cx).map_err(|error| error.in_operation(name))?;
            return Poll::Pending;
        }
        *span = None;
        polled.map_err(|error| error.in_operation(name))
    }

    #[inline]
    fn submit_now(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Submitted<Self> {
        let Self { steps, name, span } = self;
        let _recorded = cx.name_recorded(name);
        let span = span.unwrap_or_else(|| OpSpan::of_named(name));
        match span.in_scope(|| steps.submit_now(task, cx)) {
            Ok(ended) => Ok(ended.map_err(|error| error.in_operation(name))),
            Err(steps) => match check_pending(cx) {
                Ok(()) => Err(Self { steps, name, span: Some(span) }),
                Err(error) => Ok(Err(error.in_operation(name))),
            },
        }
    }

    fn nested_boxes(&self) -> usize {
        self.steps.nested_boxes()
    }
}

/// Checks that pending steps are polled again. The steps of a recording or of `async_on` are not polled again. The
/// error is made here, where the name of the operation is known.
fn check_pending(cx: &ExecutionContext) -> Result<()> {
    match cx.mode() {
        RunMode::Detached => Err(Error::needs_host_data("a step that waits")),
        RunMode::Async | RunMode::Blocking => Ok(()),
    }
}
