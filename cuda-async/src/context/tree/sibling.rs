//! Siblings: second contexts on the stream of another one.

use std::{sync::OnceLock, time::Duration};

use cuda_core::{MemoryPool, Result};

use crate::context::tree::{
    allocation_rules::AllocationRules, execution_context::ExecutionContext, shared_context::After,
};

impl ExecutionContext {
    /// Makes a second context on the same stream. This context counts the sibling's work only after
    /// [`join_sibling`](Self::join_sibling). A run that drops the sibling before that does not wait for its work.
    pub(crate) fn sibling(&self) -> Result<Self> {
        // The completion of the work so far is then known before later work is complete.
        self.request_report()?;
        on_stream_of(self, self.allocation_rules())
    }

    /// Makes a sibling whose allocations wait for memory, each at most `max`.
    pub(crate) fn with_memory_wait(&self, max: Duration) -> Result<Self> {
        on_stream_of(self, AllocationRules { wait: Some(max), ..self.allocation_rules() })
    }

    /// Makes a sibling whose allocations come from a pool.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](cuda_core::Error::WrongDevice), or an error of the device if it has no stream to lend.
    pub(crate) fn with_pool(&self, pool: &MemoryPool) -> Result<Self> {
        // Checks the device also if nothing is allocated.
        self.stream()?.in_pool(pool)?;
        let pool = Some(pool.clone());
        on_stream_of(self, AllocationRules { pool, ..self.allocation_rules() })
    }

    /// Counts the work of a [`sibling`](Self::sibling) as this context's own.
    pub(crate) fn join_sibling(&self, sibling: &Self) -> Result<()> {
        self.note(sibling.last().unwrap_or(0));
        sibling.known_stream().map_or(Ok(()), |other| self.join_stream(other))
    }
}

/// Makes a context on the stream of `cx`.
fn on_stream_of(cx: &ExecutionContext, rules: AllocationRules) -> Result<ExecutionContext> {
    let stream = OnceLock::from(rules.applied_to(cx.stream()?.clone()));
    let sibling = cx.shared().child(stream, After::new(), rules);
    sibling.note(cx.last().unwrap_or(0));
    Ok(cx.derive(sibling))
}
