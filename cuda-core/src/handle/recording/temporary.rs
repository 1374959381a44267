//! Temporary buffers of a recording: memory that was allocated in it, and of which no handle is left.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::rebase::{rebase, rebased_use};
use crate::{
    handle::stream::{CapturePool, RecordedMemory},
    order::plan::Node,
    protocol::AllocId,
};

/// The temporary buffers among the memory of a recording, sorted. Memory that live work has used is none, because its
/// contents may matter.
pub(super) fn temporary(memory: &[RecordedMemory], allocated: &[AllocId]) -> Vec<AllocId> {
    let allocated: FxHashSet<_> = allocated.iter().copied().collect();
    let is_temporary =
        |it: &&RecordedMemory| allocated.contains(&it.id()) && it.has_no_handle() && it.is_unused();
    memory.iter().filter(is_temporary).map(|it| it.id()).collect()
}

/// Puts idle memory of a pool in the place of temporary buffers, and leaves the memory of all of them in the pool for later
/// captures. Keeps `memory` and `temporary` sorted.
pub(super) fn share(
    pool: &Arc<CapturePool>,
    nodes: &mut [Node],
    memory: &mut [RecordedMemory],
    temporary: &mut [AllocId],
) {
    let mut by = FxHashMap::<AllocId, RecordedMemory>::default();
    for it in memory.iter().filter(|it| temporary.binary_search(&it.id()).is_ok()) {
        by.extend(pool.take_like(it).map(|idle| (it.id(), RecordedMemory::new(idle))));
    }
    let to = |id| by.get(&id).map_or(id, |it| it.id());
    if !by.is_empty() {
        for node in nodes {
            rebase(&mut node.work, &to);
            node.uses.iter_mut().for_each(|it| *it = rebased_use(it, &to));
        }
        for it in memory.iter_mut() {
            if let Some(shared) = by.get(&it.id()) {
                *it = shared.clone();
            }
        }
        temporary.iter_mut().for_each(|it| *it = to(*it));
        memory.sort_unstable_by_key(|it| it.id());
        temporary.sort_unstable();
    }
    let shared = memory.iter().filter(|it| temporary.binary_search(&it.id()).is_ok());
    pool.give(shared.map(RecordedMemory::share));
}
