//! Temporary buffers of a recording: memory that was allocated in it, and that nothing else owns.

use std::sync::{
    Arc,
    atomic::{Ordering, fence},
};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::handle::recording::bindings::{rebase, rebased_use};
use crate::{
    handle::stream::{Allocation, CapturePool},
    order::plan::Node,
    protocol::AllocId,
};

/// The temporary buffers among the memory of a recording, sorted. `memory` is the only place where the recording holds
/// it. Memory with another owner is none: a handle or another recording may read it. Nor is memory that live work has
/// used, because its contents may matter, nor memory without bytes.
pub(super) fn temporary(memory: &[Arc<Allocation>], allocated: &[AllocId]) -> Vec<AllocId> {
    let allocated: FxHashSet<_> = allocated.iter().copied().collect();
    let is_temporary = |memory: &&Arc<Allocation>| {
        // The only owner stays the only one: a new owner needs an existing one.
        let has_one_owner = Arc::strong_count(memory) == 1;
        // Orders the last uses of the owners that are gone before the look at the uses.
        fence(Ordering::Acquire);
        memory.bytes() > 0
            && allocated.contains(&memory.id())
            && has_one_owner
            && memory.is_unused()
    };
    memory.iter().filter(is_temporary).map(|memory| memory.id()).collect()
}

/// Puts idle memory of a pool in the place of temporary buffers, and leaves the memory of all of them in the pool for
/// later captures. Keeps `memory` and `temporary` sorted.
pub(super) fn share(
    pool: &Arc<CapturePool>,
    nodes: &mut [Node],
    memory: &mut [Arc<Allocation>],
    temporary: &mut [AllocId],
) {
    let mut by = FxHashMap::<AllocId, Arc<Allocation>>::default();
    for allocation in
        memory.iter().filter(|allocation| temporary.binary_search(&allocation.id()).is_ok())
    {
        by.extend(pool.take_like(allocation).map(|idle| (allocation.id(), idle)));
    }
    let to = |id| by.get(&id).map_or(id, |allocation| allocation.id());
    if !by.is_empty() {
        for node in nodes {
            rebase(&mut node.work, &to);
            node.uses.iter_mut().for_each(|used| *used = rebased_use(used, &to));
        }
        for allocation in memory.iter_mut() {
            if let Some(shared) = by.get(&allocation.id()) {
                *allocation = shared.clone();
            }
        }
        temporary.iter_mut().for_each(|id| *id = to(*id));
        memory.sort_unstable_by_key(|allocation| allocation.id());
        temporary.sort_unstable();
    }
    let shared =
        memory.iter().filter(|allocation| temporary.binary_search(&allocation.id()).is_ok());
    pool.give(shared.cloned());
}
