//! `ExecutionContext`: the stream and the submissions of a part of a run.
//!
//! A context belongs to one sequence of steps. It is either an inline root or one of the handles of a shared context.

use std::{sync::Arc, time::Duration};

use cuda_core::{Device, Error, Result, Stream, Ticket, internals::RecordedName};

use crate::context::tree::{
    allocation_rules::AllocationRules, inline_root::InlineRoot, run_mode::RunMode,
    shared_context::SharedContext,
};

/// The context in which an operation runs: its device and its stream. Clones are the same context.
///
/// A context is `Send` and not `Sync`: a thread that needs the context of another thread gets a clone.
pub struct ExecutionContext(Repr);

enum Repr {
    Inline(InlineRoot),
    Shared(Arc<SharedContext>),
}

impl ExecutionContext {
    /// The root context of a run on `stream`.
    #[inline]
    pub(crate) const fn root(stream: Stream, mode: RunMode) -> Self {
        Self(Repr::Inline(InlineRoot::new(stream, mode)))
    }

    pub(super) fn from_shared(shared: SharedContext) -> Self {
        Self(Repr::Shared(Arc::new(shared)))
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        match &self.0 {
            Repr::Inline(root) => root.stream().device(),
            Repr::Shared(shared) => shared.root_data().stream.device(),
        }
    }

    /// Returns whether the run is recorded into a graph instead of submitted.
    pub fn is_recording(&self) -> bool {
        match &self.0 {
            Repr::Inline(root) => root.stream().is_recording(),
            Repr::Shared(shared) => shared.root_data().stream.is_recording(),
        }
    }

    /// Names the work that a recorded run takes until the guard is dropped. Returns `None` in other runs.
    #[inline]
    pub(crate) fn name_recorded(&self, name: &str) -> Option<RecordedName> {
        match &self.0 {
            Repr::Inline(root) => root.stream().name_recorded(name),
            Repr::Shared(shared) => shared.root_data().stream.name_recorded(name),
        }
    }

    /// Enqueues work on this context's stream. The operation is complete only after that work is complete.
    ///
    /// # Errors
    /// The error of `submit`, or of the device if it has no stream to lend.
    #[inline(always)] // so that a launch is submitted without copies of its values
    pub fn enqueue<R>(&self, submit: impl FnOnce(&Stream) -> Result<R>) -> Result<R> {
        let stream = self.stream()?;
        let result = submit(stream);
        if let Err(lost @ Error::DeviceLost { .. }) = result {
            return Err(self.own_error(lost));
        }
        self.note(stream.last().number);
        result
    }

    /// Returns the fault that lost the device, if `error` reports the loss and work of this operation was in flight. The
    /// operation then reports the fault, and not the `DeviceLost` of its later submission.
    #[cold]
    fn own_error(&self, error: Error) -> Error {
        Self::fault_of(&[self.clone(), self.root_context()], error)
    }

    /// As [`own_error`](Self::own_error), for work of any of these contexts.
    #[cold]
    pub(super) fn fault_of(contexts: &[ExecutionContext], error: Error) -> Error {
        let fault = || contexts.iter().find_map(|it| it.known_stream()?.fault());
        error.map_root(|error| match error {
            Error::DeviceLost { .. } => fault().unwrap_or(error),
            error => error,
        })
    }

    /// The stream, for a step that enqueues something now; see [`enqueue`](ExecutionContext::enqueue).
    #[inline]
    pub(in crate::context) fn stream(&self) -> Result<&Stream> {
        match &self.0 {
            Repr::Inline(root) => Ok(root.stream()),
            Repr::Shared(shared) => shared.stream().map_err(|error| self.own_error(error)),
        }
    }

    /// The stream, if this context has one.
    #[inline]
    pub(in crate::context) fn known_stream(&self) -> Option<&Stream> {
        match &self.0 {
            Repr::Inline(root) => Some(root.stream()),
            Repr::Shared(shared) => shared.known_stream(),
        }
    }

    /// The number of the last submission, if there is one.
    #[inline]
    pub(crate) fn last(&self) -> Option<u64> {
        let last = match &self.0 {
            Repr::Inline(root) => root.last(),
            Repr::Shared(shared) => shared.last(),
        };
        Some(last).filter(|number| *number > 0)
    }

    /// Calls `submit`, whose work the device may launch together: see [`Stream::open_window`].
    #[inline]
    pub(crate) fn in_window<R>(&self, submit: impl FnOnce() -> R) -> R {
        if let Some(stream) = self.known_stream() {
            stream.open_window();
        }
        let _window = Window(self);
        submit()
    }

    /// Closes the windows of all handles of this context. A context that was promoted meanwhile has two.
    #[inline]
    fn close_window(&self) {
        if let Repr::Inline(root) = &self.0 {
            root.close_window();
        } else if let Some(stream) = self.known_stream() {
            stream.close_window();
        }
    }

    /// Counts submission `number` as this context's own.
    #[inline]
    pub(super) fn note(&self, number: u64) {
        match &self.0 {
            Repr::Inline(root) => root.note(number),
            Repr::Shared(shared) => shared.note(number),
        }
    }

    /// The last submission of this context, if there is one.
    pub(super) fn last_ticket(&self) -> Option<Ticket> {
        Some(Ticket { stream: self.known_stream()?.id(), number: self.last()? })
    }

    /// A handle that counts the submissions of this context so far. Returns `None` if there are none.
    pub(crate) fn snapshot(&self) -> Option<Stream> {
        self.last()?;
        self.known_stream().map(Stream::snapshot)
    }

    /// The kind of waits in this run now: a blocking run may have changed to waits by wakers.
    #[inline]
    pub(crate) fn mode(&self) -> RunMode {
        match &self.0 {
            Repr::Inline(root) => root.known_shared().map_or(root.mode, |shared| shared.mode()),
            Repr::Shared(shared) => shared.mode(),
        }
    }

    /// The kind of waits with which this run began.
    pub(in crate::context) fn first_mode(&self) -> RunMode {
        match &self.0 {
            Repr::Inline(root) => root.mode,
            Repr::Shared(shared) => shared.first_mode(),
        }
    }

    /// The time for which allocations of this context may wait for memory.
    pub(in crate::context) fn memory_wait(&self) -> Option<Duration> {
        self.known_shared().and_then(|shared| shared.allocation_rules.wait)
    }

    /// How the allocations of this context are made.
    pub(super) fn allocation_rules(&self) -> AllocationRules {
        self.known_shared().map(|shared| shared.allocation_rules.clone()).unwrap_or_default()
    }

    /// The shared form of this context. Promotes an inline root.
    pub(in crate::context) fn shared(&self) -> &Arc<SharedContext> {
        match &self.0 {
            Repr::Inline(root) => root.shared(),
            Repr::Shared(shared) => shared,
        }
    }

    /// The shared form of this context, if it has one.
    pub(in crate::context) fn known_shared(&self) -> Option<&Arc<SharedContext>> {
        match &self.0 {
            Repr::Inline(root) => root.known_shared(),
            Repr::Shared(shared) => Some(shared),
        }
    }

    /// Requests a report of the work so far, so that its completion is known before later work is complete.
    pub(crate) fn request_report(&self) -> Result<()> {
        match (self.known_stream(), self.last()) {
            (Some(stream), Some(number)) => stream.request_report(number),
            _ => Ok(()),
        }
    }

    fn root_context(&self) -> Self {
        Self(Repr::Shared(SharedContext::root_of(self.shared()).clone()))
    }
}

/// The open window of a context. Closed when it is dropped, also by unwinding.
struct Window<'a>(&'a ExecutionContext);

impl Drop for Window<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.close_window();
    }
}

impl Clone for ExecutionContext {
    fn clone(&self) -> Self {
        Self(Repr::Shared(self.shared().clone()))
    }
}

impl PartialEq for ExecutionContext {
    fn eq(&self, other: &Self) -> bool {
        let both = self.known_shared().zip(other.known_shared());
        std::ptr::eq(self, other) || both.is_some_and(|(this, other)| Arc::ptr_eq(this, other))
    }
}

impl std::fmt::Debug for ExecutionContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExecutionContext({} on {:?})", self.device().info().address, self.known_stream())
    }
}

#[cfg(all(test, feature = "cpu"))]
#[path = "execution_context_tests.rs"]
mod tests;
