//! Polled roots: roots whose steps another context polls. That context is the poller.
//!
//! The steps of [`on`](crate::ops::DeviceOp::on) run in a root on another device, and one context polls them until they
//! end. The steps of a [`shared`](crate::ops::DeviceOp::shared) operation run in a root of their own. Any run that has a
//! clone of the operation may poll them next. The chain of pollers shows whether a `shared` operation waits for itself.

use std::sync::Arc;

use cuda_core::{Result, Stream};

use crate::context::tree::{
    execution_context::{ExecutionContext, RunMode},
    shared_context::SharedContext,
};

/// Holds the poller of a root. Its drop removes the poller.
pub(crate) struct PollerGuard<'a>(&'a SharedContext);

impl ExecutionContext {
    /// Makes a root context on another stream, perhaps of another device. This context is its poller, and does not count
    /// its work.
    pub(crate) fn on_other_stream(&self, stream: Stream) -> Self {
        let root = self.other_root(stream);
        *root.root_data().poller.lock() = Some(self.shared().clone());
        self.derive(root)
    }

    /// Makes a root context on the same stream for the steps of the `shared` operation `id`, which several runs may
    /// poll. It has no poller until [`set_poller`](Self::set_poller).
    pub(crate) fn separate_root(&self, id: usize) -> Result<Self> {
        Ok(self.derive(self.other_root(self.stream()?.clone()).with_part_of(id)))
    }

    fn other_root(&self, stream: Stream) -> SharedContext {
        let mode = if stream.is_recording() { RunMode::Detached } else { RunMode::Async };
        let rules = self.allocation_rules();
        let stream = rules.applied_to(stream);
        SharedContext::root(stream, mode, rules, 0)
    }

    /// Makes `poller` the poller of this context's root, until the guard is dropped.
    pub(crate) fn set_poller(&self, poller: &ExecutionContext) -> PollerGuard<'_> {
        let root = &**SharedContext::root_of(self.shared());
        let before = root.root_data().poller.lock().replace(poller.shared().clone());
        drop(before);
        PollerGuard(root)
    }

    /// The kind of waits in the run that polls these steps now. In a polled root this is the mode of the outermost
    /// poller, otherwise it is [`mode`](Self::mode).
    pub(crate) fn mode_of_poll(&self) -> RunMode {
        let has_poller = |shared: &Arc<SharedContext>| shared.root_data().poller.lock().is_some();
        if !self.known_shared().is_some_and(has_poller) {
            return self.mode();
        }
        self.poll_chain().last().map_or_else(|| self.mode(), |outermost| outermost.mode())
    }

    /// Whether this context, or one of its pollers, is part of the `shared` operation `id`.
    pub(crate) fn is_part_of(&self, id: usize) -> bool {
        self.poll_chain().any(|context| context.root_data().part_of == Some(id))
    }

    /// This context, then the poller of its root, then the poller of that one's root, up to the outermost.
    fn poll_chain(&self) -> impl Iterator<Item = Arc<SharedContext>> {
        std::iter::successors(self.known_shared().cloned(), |context| {
            context.root_data().poller.lock().clone()
        })
    }
}

impl Drop for PollerGuard<'_> {
    fn drop(&mut self) {
        let poller = self.0.root_data().poller.lock().take();
        drop(poller);
    }
}
