//! Contexts that a part of an operation runs in: on the same stream, or apart from the run.

use std::{sync::OnceLock, time::Duration};

use cuda_core::{Result, Stream};

use crate::context::{
    execution_context::ExecutionContext,
    run_mode::RunMode,
    shared::{After, Shared},
};

impl ExecutionContext {
    /// Makes a context on the same stream, behind the work of this one. Its work counts as this context's only after
    /// [`join_sibling`](Self::join_sibling). Until then the run can give it up.
    pub(crate) fn sibling(&self) -> Result<Self> {
        self.request_notice()?;
        self.on_this_stream(self.memory_wait())
    }

    /// Makes a sibling whose allocations wait for memory, each at most `max`.
    pub(crate) fn with_memory_wait(&self, max: Duration) -> Result<Self> {
        self.on_this_stream(Some(max))
    }

    /// Counts the work of a [`sibling`](Self::sibling) as this context's own.
    pub(crate) fn join_sibling(&self, sibling: &Self) {
        self.note(sibling.last().unwrap_or(0));
        if let (Some(stream), Some(other)) = (self.known_stream(), sibling.known_stream()) {
            // Both handles are of one stream, so this submits nothing and cannot fail.
            _ = stream.join_stream(other);
        }
    }

    /// Makes a root context on another stream, perhaps of another device. Its work does not count as this context's.
    pub(crate) fn on_other_stream(&self, stream: Stream) -> Self {
        Self::from_shared(Shared::root(stream, RunMode::Async, self.memory_wait(), 0))
    }

    /// Makes a root context on the same stream, for steps that several runs may drive.
    pub(crate) fn separate_root(&self) -> Result<Self> {
        Ok(self.on_other_stream(self.stream()?.clone()))
    }

    fn on_this_stream(&self, memory_wait: Option<Duration>) -> Result<Self> {
        let stream = OnceLock::from(self.stream()?.clone());
        let sibling = self.shared().branch(stream, After::new(), memory_wait);
        sibling.note(self.last().unwrap_or(0));
        Ok(Self::from_shared(sibling))
    }

    /// Requests a notice for the work so far, so that its completion is known before later work completes.
    fn request_notice(&self) -> Result<()> {
        if let (Some(stream), Some(number)) = (self.known_stream(), self.last()) {
            drop(stream.waiter(number)?);
        }
        Ok(())
    }
}
