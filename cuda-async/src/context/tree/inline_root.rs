//! `InlineRoot`: the root context of a run, stored in the run itself and not behind an `Arc`.
//!
//! A run keeps its root context on its stack or in its future. Most runs never clone it, so most runs allocate
//! nothing. Anything that needs more than the stream and the last submission promotes the root to an `Arc` first.
//! After a promotion, both copies of `last` count: [`InlineRoot::last`] is the larger one.
//!
//! The cells make this type, and with it [`ExecutionContext`](crate::context::ExecutionContext), `Send` but not `Sync`.
//! A thread that needs the context of another thread gets a clone, and clones count submissions atomically.

use std::{
    cell::{Cell, OnceCell},
    sync::Arc,
};

use cuda_core::Stream;

use crate::context::tree::{
    allocation_rules::AllocationRules, run_mode::RunMode, shared_context::SharedContext,
};

pub(super) struct InlineRoot {
    stream: Stream,
    pub(super) mode: RunMode,
    /// The number of the last submission that was made through this context, or 0.
    last: Cell<u64>,
    shared: OnceCell<Arc<SharedContext>>,
}

impl InlineRoot {
    #[inline]
    pub(super) const fn new(stream: Stream, mode: RunMode) -> Self {
        Self { stream, mode, last: Cell::new(0), shared: OnceCell::new() }
    }

    /// The handle that counts the submissions of this run: after a promotion, the shared one.
    #[inline]
    pub(super) fn stream(&self) -> &Stream {
        match self.shared.get() {
            None => &self.stream,
            Some(shared) => shared.known_stream().unwrap_or(&self.stream),
        }
    }

    /// Closes the windows of both handles.
    #[inline]
    pub(super) fn close_window(&self) {
        self.stream.close_window();
        if let Some(shared) = self.shared.get()
            && let Some(stream) = shared.known_stream()
        {
            stream.close_window();
        }
    }

    #[inline]
    pub(super) fn note(&self, number: u64) {
        self.last.set(self.last.get().max(number));
        if let Some(shared) = self.shared.get() {
            shared.note(number);
        }
    }

    #[inline]
    pub(super) fn last(&self) -> u64 {
        let last = self.last.get();
        self.shared.get().map_or(last, |shared| last.max(shared.last()))
    }

    /// The shared context, if this one was promoted.
    #[inline]
    pub(super) fn known_shared(&self) -> Option<&Arc<SharedContext>> {
        self.shared.get()
    }

    /// Promotes this context, unless that has happened: makes the shared context, which counts the submissions from now
    /// on.
    pub(super) fn shared(&self) -> &Arc<SharedContext> {
        self.shared.get_or_init(|| {
            let (stream, last) = (self.stream.snapshot(), self.last.get());
            // The new handle goes on with the window of this one.
            if self.stream.has_open_window() {
                stream.open_window();
            }
            let shared = SharedContext::root(stream, self.mode, AllocationRules::default(), last);
            Arc::new(shared)
        })
    }
}
