//! Contexts that are made from another one: forks for branches that run concurrently, with their joins, siblings on the
//! same stream, and polled roots.
//!
//! # Polled roots
//! The steps of a polled root are polled by another context, its poller. The steps of [`on`](crate::ops::DeviceOp::on)
//! run in a root on another device, and one context polls them until they end. The steps of a
//! [`shared`](crate::ops::DeviceOp::shared) operation run in a root of their own. Any run that has a clone of the
//! operation may poll them next. The chain of pollers shows whether a `shared` operation waits for itself.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use cuda_core::{MemoryPool, Result, Stream, Ticket, internals::join_parts};

use crate::context::execution_context::{
    After, AllocationRules, ContextKind, ExecutionContext, RunMode, SharedContext, fault_of,
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
            Some(_) => cx.enqueue(|stream| join_parts(stream, streams()).map(drop)),
            None => Ok(()),
        };
        branches.iter().filter(joined).for_each(ExecutionContext::set_counted);
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
        sibling.set_counted();
        let join = |other| self.enqueue(|stream| join_parts(stream, [other]).map(drop));
        sibling.known_stream().map_or(Ok(()), join)
    }

    /// Records that another context or a handle of the stream counts the submissions of this context. They are then not
    /// cancelled when this context is dropped.
    pub(crate) fn set_counted(&self) {
        self.shared().set_counted();
    }

    /// Makes a root context on another stream, perhaps of another device. This context is its poller, and does not
    /// count its work.
    pub(crate) fn on_other_stream(&self, stream: Stream) -> Self {
        let root = root_beside(self, stream);
        *root.root_data().poller.lock() = Some(self.shared().clone());
        self.derive(root)
    }

    /// Makes a root context on the same stream for the steps of the `shared` operation `id`, which several runs may
    /// poll. It has no poller without a [`PollerGuard`].
    pub(crate) fn separate_root(&self, id: usize) -> Result<Self> {
        Ok(self.derive(root_beside(self, self.stream()?.clone()).with_part_of(id)))
    }

    /// The kind of waits in the run that polls these steps now. In a polled root this is the mode of the outermost
    /// poller, otherwise it is [`mode`](Self::mode).
    pub(crate) fn mode_of_poll(&self) -> RunMode {
        let has_poller = |shared: &Arc<SharedContext>| shared.root_data().poller.lock().is_some();
        if !self.known_shared().is_some_and(has_poller) {
            return self.mode();
        }
        poll_chain(self).last().map_or_else(|| self.mode(), |outermost| outermost.mode())
    }

    /// Whether this context, or one of its pollers, is part of the `shared` operation `id`.
    pub(crate) fn is_part_of(&self, id: usize) -> bool {
        poll_chain(self).any(|context| context.root_data().part_of == Some(id))
    }
}

/// Makes a context on the stream of `cx`.
fn on_stream_of(cx: &ExecutionContext, rules: AllocationRules) -> Result<ExecutionContext> {
    let stream = OnceLock::from(rules.applied_to(cx.stream()?.clone()));
    let sibling = cx.shared().child(stream, After::new(), rules);
    sibling.note(cx.last().unwrap_or(0));
    Ok(cx.derive(sibling))
}

/// Makes a root on another stream, with the allocation rules of `cx`.
fn root_beside(cx: &ExecutionContext, stream: Stream) -> SharedContext {
    let mode = if stream.is_recording() { RunMode::Detached } else { RunMode::Async };
    let rules = cx.allocation_rules();
    let stream = rules.applied_to(stream);
    SharedContext::root(stream, mode, rules, 0)
}

/// Returns `cx`, then the poller of its root, then the poller of that one's root, up to the outermost.
fn poll_chain(cx: &ExecutionContext) -> impl Iterator<Item = Arc<SharedContext>> {
    std::iter::successors(cx.known_shared().cloned(), |context| {
        context.root_data().poller.lock().clone()
    })
}

/// Holds the poller of a root. Its drop removes the poller.
pub(crate) struct PollerGuard<'a>(&'a SharedContext);

impl<'a> PollerGuard<'a> {
    /// Makes `poller` the poller of the root of `cx`, until the guard is dropped.
    pub(crate) fn new(cx: &'a ExecutionContext, poller: &ExecutionContext) -> Self {
        let root = &**SharedContext::root_of(cx.shared());
        let before = root.root_data().poller.lock().replace(poller.shared().clone());
        drop(before);
        Self(root)
    }
}

impl Drop for PollerGuard<'_> {
    fn drop(&mut self) {
        let poller = self.0.root_data().poller.lock().take();
        drop(poller);
    }
}
