//! Forks: contexts for branches that run concurrently, and joins.

use std::sync::OnceLock;

use cuda_core::{Result, Stream};

use crate::context::tree::{
    execution_context::ExecutionContext,
    shared_context::{After, ContextKind},
};

impl ExecutionContext {
    /// Makes contexts for `count` concurrent branches. The last one is this context. The others come after the work
    /// that this context has enqueued so far. Nothing comes after them until [`join`](Self::join).
    ///
    /// Branches are polled in order, so the last one submits last. Of equal branches it also ends last, and then the
    /// stream of this context waits for no other stream at the join.
    pub(crate) fn fork(&self, count: usize) -> Result<Vec<ExecutionContext>> {
        let mut branches = Vec::with_capacity(count);
        if count > 1 {
            let shared = self.shared();
            let mut after = match &shared.kind {
                ContextKind::Root(_) => After::new(),
                ContextKind::Child(child) => child.after.lock().clone(),
            };
            after.extend(self.last_ticket());
            branches.extend((1..count).map(|_| {
                let (stream, after) = (OnceLock::new(), after.clone());
                self.derive(shared.child(stream, after, shared.allocation_rules.clone()))
            }));
        }
        branches.push(self.clone());
        Ok(branches)
    }

    /// Ends a fork: [joins](Self::join) the branches and returns the outcome of their steps. A branch that found the device
    /// lost reports the fault, if work of any branch was in flight.
    pub(crate) fn end_fork(
        &self,
        branches: &[ExecutionContext],
        outcome: Result<()>,
    ) -> Result<()> {
        // A failed branch is joined too, because the work that it submitted is part of the operation.
        let outcome = outcome.map_err(|error| Self::fault_of(branches, error));
        outcome.and(self.join(branches))
    }

    /// Orders later work of this context after all work of the branches, and counts their work as its own. Submits one
    /// join for all branches.
    fn join(&self, branches: &[ExecutionContext]) -> Result<()> {
        let joined = |branch: &&ExecutionContext| *branch != self && branch.last().is_some();
        let streams = || branches.iter().filter(joined).filter_map(Self::known_stream);
        if streams().next().is_none() {
            return Ok(());
        }
        self.enqueue(|stream| stream.join_streams(streams()).map(drop))
    }

    /// Orders later work of this context after the submissions of a handle, and counts them as its own.
    pub(crate) fn join_stream(&self, other: &Stream) -> Result<()> {
        self.enqueue(|stream| stream.join_stream(other).map(drop))
    }
}
