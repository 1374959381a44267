//! `AllocationRules`: the pool of a context's allocations, and their wait for memory. Contexts that are made from the
//! context inherit the rules.

use std::time::Duration;

use cuda_core::{MemoryPool, Stream, internals::allocating_in};

#[derive(Clone, Default)]
pub(in crate::context) struct AllocationRules {
    /// The time for which an allocation may wait for memory.
    pub(in crate::context) wait: Option<Duration>,
    /// The pool of the allocations. `None` if the stream decides, which is the default pool unless its handle has one.
    pub(super) pool: Option<MemoryPool>,
}

impl AllocationRules {
    /// The handle of a stream through which a context with these rules submits.
    pub(super) fn applied_to(&self, stream: Stream) -> Stream {
        match &self.pool {
            Some(pool) => allocating_in(&stream, pool),
            None => stream,
        }
    }
}
