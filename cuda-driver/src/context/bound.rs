//! Proof that a context is current on a thread.

use std::marker::PhantomData;

use crate::driver::{
    api::{Api, ContextHandle},
    status::Failed,
};

/// Proof that the context is current on this thread. Dropping it restores the context that was current before.
///
/// Its `Drop` calls the driver (rule 11): it restores a setting of its own thread and cannot block.
#[derive(Debug)]
pub(crate) struct Bound {
    api: &'static Api,
    pushed: bool,
    /// The current context is a property of one thread.
    thread: PhantomData<*const ()>,
}

impl Bound {
    /// Makes a context current on this thread, unless it is.
    ///
    /// # Safety
    /// The context lives as long as the result.
    #[inline]
    pub(super) unsafe fn to(api: &'static Api, context: ContextHandle) -> Result<Self, Failed> {
        let mut current = ContextHandle::NULL;
        // SAFETY: writes one handle.
        unsafe { api.context_current(&mut current) }?;
        let pushed = current != context;
        if pushed {
            // SAFETY: the context lives as long as the result.
            unsafe { api.context_push(context) }?;
        }
        Ok(Self { api, pushed, thread: PhantomData })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ContextHandle::NULL;
            // SAFETY: removes the entry that `to` pushed on this thread's stack.
            _ = unsafe { self.api.context_pop(&mut popped) };
        }
    }
}
