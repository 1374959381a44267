//! `named`: gives an operation a name in recordings, in errors and in `tracing`.

use std::task::Context;

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
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let Self { steps, name, span } = self;
        let _recorded = cx.name_recorded(name);
        let span = span.unwrap_or_else(|| OpSpan::of_named(name));
        let submitted = span.in_scope(|| steps.submit(task, cx)).and_then(|submitted| {
            if let Submitted::Pending(_) = submitted {
                check_pending(cx)?;
            }
            Ok(submitted)
        });
        let submitted = submitted.map_err(|error| error.in_operation(name))?;
        Ok(submitted.map_pending(|steps| Self { steps, name, span: Some(span) }))
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
