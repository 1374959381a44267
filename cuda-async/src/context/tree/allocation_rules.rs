//! `AllocationRules`: how the allocations of a context are made. Contexts that are made from it inherit them.

use std::time::Duration;

use cuda_core::{MemoryPool, Stream};

#[derive(Clone, Default)]
pub(in crate::context) struct AllocationRules {
    /// The time for which an allocation may wait for memory.
    pub(super) wait: Option<Duration>,
    /// The pool of the allocations. `None` if the stream decides, which is the default pool unless its handle has one.
    pub(super) pool: Option<MemoryPool>,
}

impl AllocationRules {
    /// The handle of a stream through which a context with these rules submits.
    pub(super) fn applied_to(&self, stream: Stream) -> Stream {
        match &self.pool {
            Some(pool) => stream.allocating_in(pool),
            None => stream,
        }
    }
}
