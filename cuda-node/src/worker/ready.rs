//! The end of a preparation in the backend: of a graph, or of a module.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the backend has prepared a graph or loaded a module, or failed to. A launch before that could block.
#[derive(Default)]
pub(super) struct Ready {
    has_ended: AtomicBool,
    /// Set when the engine acts on the end. Before, the backend may answer while the engine holds its lock.
    is_awaited: AtomicBool,
}

impl Ready {
    /// Ends the preparation. Calls `advance` if the engine acts on the end.
    pub(super) fn end(&self, advance: impl FnOnce()) {
        self.has_ended.store(true, Ordering::SeqCst);
        if self.is_awaited.load(Ordering::SeqCst) {
            advance();
        }
    }

    /// Makes the end of the preparation advance the engine. A launch after this call sees an end that came before the
    /// call.
    pub(super) fn wait(&self) {
        self.is_awaited.store(true, Ordering::SeqCst);
    }

    /// Whether the preparation has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }
}
