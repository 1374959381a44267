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
        self.on_this_stream(self.allocation_rules())
    }

    /// Makes a sibling whose allocations wait for memory, each at most `max`.
    pub(crate) fn with_memory_wait(&self, max: Duration) -> Result<Self> {
        self.on_this_stream(AllocationRules { wait: Some(max), ..self.allocation_rules() })
    }

    /// Makes a sibling whose allocations come from a pool.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](cuda_core::Error::WrongDevice), or an error of the device if it has no stream to lend.
    pub(crate) fn with_pool(&self, pool: &MemoryPool) -> Result<Self> {
        // Checks the device also if nothing is allocated.
        self.stream()?.in_pool(pool)?;
        let pool = Some(pool.clone());
        self.on_this_stream(AllocationRules { pool, ..self.allocation_rules() })
    }

    /// Counts the work of a [`sibling`](Self::sibling) as this context's own.
    pub(crate) fn join_sibling(&self, sibling: &Self) -> Result<()> {
        self.note(sibling.last().unwrap_or(0));
        sibling.known_stream().map_or(Ok(()), |other| self.join_stream(other))
    }

    fn on_this_stream(&self, rules: AllocationRules) -> Result<Self> {
        let stream = OnceLock::from(rules.applied_to(self.stream()?.clone()));
        let sibling = self.shared().child(stream, After::new(), rules);
        sibling.note(self.last().unwrap_or(0));
        Ok(self.derive(sibling))
    }
}
