//! Polled roots: roots whose steps another context polls. That context is the poller.
//!
//! The steps of [`on`](crate::ops::DeviceOp::on) run in a root on another device, and one context polls them until they
//! end. The steps of a [`shared`](crate::ops::DeviceOp::shared) operation run in a root of their own. Any run that has
//! a clone of the operation may poll them next. The chain of pollers shows whether a `shared` operation waits for
//! itself.

use std::sync::Arc;

use cuda_core::{Result, Stream};

use crate::context::tree::{
    execution_context::{ExecutionContext, RunMode},
    shared_context::SharedContext,
};

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

impl ExecutionContext {
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
