//! Contexts that a part of an operation runs in: on the same stream, or apart from the run.

use std::{sync::OnceLock, time::Duration};

use cuda_core::{Result, Stream};

use crate::context::tree::{
    execution_context::ExecutionContext,
    run_mode::RunMode,
    shared_context::{After, SharedContext},
};

impl ExecutionContext {
    /// Makes a second context on the same stream. This context counts the sibling's work only after
    /// [`join_sibling`](Self::join_sibling). A run that drops the sibling before that does not wait for its work.
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
        let root = self.other_root(stream);
        *root.root_data().poller.lock() = Some(self.shared().clone());
        Self::from_shared(root)
    }

    fn other_root(&self, stream: Stream) -> SharedContext {
        let mode = if stream.is_recording() { RunMode::Detached } else { RunMode::Async };
        let root = SharedContext::root(stream, mode, self.memory_wait(), 0);
        root.set_nesting(self.nesting());
        root
    }

    /// Makes a root context on the same stream for the steps of the `shared` operation `id`, which several runs may
    /// poll.
    pub(crate) fn separate_root(&self, id: usize) -> Result<Self> {
        Ok(Self::from_shared(self.other_root(self.stream()?.clone()).with_part_of(id)))
    }

    fn on_this_stream(&self, memory_wait: Option<Duration>) -> Result<Self> {
        let stream = OnceLock::from(self.stream()?.clone());
        let sibling = self.shared().child(stream, After::new(), memory_wait);
        sibling.note(self.last().unwrap_or(0));
        Ok(Self::from_shared(sibling))
    }

    /// Requests a notice for the work so far, so that its completion is known before later work completes.
    pub(crate) fn request_notice(&self) -> Result<()> {
        if let (Some(stream), Some(number)) = (self.known_stream(), self.last()) {
            drop(stream.waiter(number)?);
        }
        Ok(())
    }
}
