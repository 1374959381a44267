//! Siblings: second contexts on the stream of another one.

use std::{sync::OnceLock, time::Duration};

use cuda_core::Result;

use crate::context::tree::{execution_context::ExecutionContext, shared_context::After};

impl ExecutionContext {
    /// Makes a second context on the same stream. This context counts the sibling's work only after
    /// [`join_sibling`](Self::join_sibling). A run that drops the sibling before that does not wait for its work.
    pub(crate) fn sibling(&self) -> Result<Self> {
        // The completion of the work so far is then known before later work is complete.
        self.request_report()?;
        self.on_this_stream(self.memory_wait())
    }

    /// Makes a sibling whose allocations wait for memory, each at most `max`.
    pub(crate) fn with_memory_wait(&self, max: Duration) -> Result<Self> {
        self.on_this_stream(Some(max))
    }

    /// Counts the work of a [`sibling`](Self::sibling) as this context's own.
    pub(crate) fn join_sibling(&self, sibling: &Self) -> Result<()> {
        self.note(sibling.last().unwrap_or(0));
        sibling.known_stream().map_or(Ok(()), |other| self.join_stream(other))
    }

    fn on_this_stream(&self, memory_wait: Option<Duration>) -> Result<Self> {
        let stream = OnceLock::from(self.stream()?.clone());
        let sibling = self.shared().child(stream, After::new(), memory_wait);
        sibling.note(self.last().unwrap_or(0));
        Ok(Self::from_shared(sibling))
    }
}
