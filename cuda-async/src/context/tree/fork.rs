//! Forks: contexts for branches that run concurrently, and joins.

use std::sync::OnceLock;

use cuda_core::{Result, Stream, Ticket};

use crate::context::tree::{
    execution_context::{ExecutionContext, fault_of},
    shared_context::{After, ContextKind},
};

/// The contexts of concurrent branches. They are made at the first poll.
#[derive(Default)]
pub(crate) struct Fork(Vec<ExecutionContext>);

impl Fork {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns one context for each of `count` branches. The last one is `cx`. The others come after the work that `cx`
    /// has enqueued so far. Nothing comes after them until [`end`](Self::end).
    ///
    /// Branches are polled in order, so the last one submits last. Of equal branches it also ends last, and then the
    /// stream of `cx` waits for no other stream at the join.
    pub(crate) fn contexts(&mut self, cx: &ExecutionContext, count: usize) -> &[ExecutionContext] {
        if self.0.is_empty() {
            self.0 = branches(cx, count);
        }
        &self.0
    }

    /// Orders later work of `cx` after all work of the branches, and counts their work as its own. Submits one join for
    /// all branches. Returns the outcome of their steps. A branch that found the device lost reports the fault, if work
    /// of any branch was in flight.
    pub(crate) fn end(&mut self, cx: &ExecutionContext, outcome: Result<()>) -> Result<()> {
        let branches = std::mem::take(&mut self.0);
        let joined = |branch: &&ExecutionContext| *branch != cx && branch.last().is_some();
        let streams = || branches.iter().filter(joined).filter_map(ExecutionContext::known_stream);
        // A failed branch is joined too, because the work that it submitted is part of the operation.
        let join = match streams().next() {
            Some(_) => cx.enqueue(|stream| stream.join_streams(streams()).map(drop)),
            None => Ok(()),
        };
        outcome.map_err(|error| fault_of(&branches, error)).and(join)
    }
}

fn branches(cx: &ExecutionContext, count: usize) -> Vec<ExecutionContext> {
    let mut branches = Vec::with_capacity(count);
    if count > 1 {
        let shared = cx.shared();
        let mut after = match &shared.kind {
            ContextKind::Root(_) => After::new(),
            ContextKind::Child(child) => child.after.lock().clone(),
        };
        let last = cx.known_stream().map(Stream::id).zip(cx.last());
        after.extend(last.map(|(stream, number)| Ticket { stream, number }));
        branches.extend((1..count).map(|_| {
            let (stream, after) = (OnceLock::new(), after.clone());
            cx.derive(shared.child(stream, after, shared.allocation_rules.clone()))
        }));
    }
    branches.push(cx.clone());
    branches
}

impl ExecutionContext {
    /// Orders later work of this context after the submissions of a handle, and counts them as its own.
    pub(crate) fn join_stream(&self, other: &Stream) -> Result<()> {
        self.enqueue(|stream| stream.join_streams([other]).map(drop))
    }
}
