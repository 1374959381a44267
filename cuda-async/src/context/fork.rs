//! Forks: contexts for branches that run concurrently, and joins.

use std::sync::OnceLock;

use cuda_core::{Event, Result, StreamId};
use smallvec::SmallVec;

use crate::context::{
    execution_context::ExecutionContext,
    shared::{Events, Place},
};

impl ExecutionContext {
    /// Makes contexts for `count` concurrent branches. The first one is this context. The others come after the work
    /// that this context has enqueued so far. Nothing comes after them until [`join`](Self::join).
    pub(crate) fn fork(&self, count: usize) -> Result<Vec<ExecutionContext>> {
        let mut branches = Vec::with_capacity(count);
        branches.push(self.clone());
        if count > 1 {
            let shared = self.shared();
            let mut after = match &shared.place {
                Place::Root(_) => Events::new(),
                Place::Branch(branch) => branch.after.lock().clone(),
            };
            after.extend(self.record()?);
            branches.extend((1..count).map(|_| {
                let (stream, after) = (OnceLock::new(), after.clone());
                Self::from_shared(shared.branch(stream, after, shared.memory_wait))
            }));
        }
        Ok(branches)
    }

    /// Orders later work of this context after all work of the branches, and counts their work as its own. Joins each
    /// stream once, also if several branches share it.
    pub(crate) fn join(&self, branches: &[ExecutionContext]) -> Result<()> {
        let mut joined: SmallVec<[StreamId; 8]> = SmallVec::new();
        for branch in branches.iter().filter(|branch| *branch != self && branch.last().is_some()) {
            let Some(stream) =
                branch.known_stream().filter(|stream| !joined.contains(&stream.id()))
            else {
                continue;
            };
            joined.push(stream.id());
            self.join_event(&stream.record()?)?;
        }
        Ok(())
    }

    /// Orders later work of this context after `event`, and counts the work before the event as its own.
    pub(crate) fn join_event(&self, event: &Event) -> Result<()> {
        self.enqueue(|stream| stream.wait_event(event).map(drop))
    }
}
