//! Dead work: items that no caller waits for and whose results nothing can see.
//!
//! # Rules
//! An item is dead if all of this holds:
//! - The client has cancelled it. A download is dead only if the client reads its host memory no more.
//! - It has no effects but those on its operands ([`QueueItem::may_be_skipped`]). It is no launch of a graph.
//! - Every allocation that it writes is freed by a later item, and every item between the two that reads the allocation
//!   is dead.
//!
//! "Later" is the order in which the items of all streams arrived. They may run in this order: the client names only
//! tickets that arrived earlier, and it frees memory after the last use has arrived. Items that have begun are not
//! looked at. They read only what was written before, and no earlier item reads what they write.
//!
//! A dead item stays dead. Nothing that arrives later can use its results, because the memory is already freed.

use cuda_core::{
    Access,
    internals::IdSet,
    protocol::{AllocId, Use},
};

use super::work::{Cancelled, QueueItem, Work};
use crate::device::state::DeviceState;

/// Marks the dead items among `items`: all items of the device that have not begun, the last one that arrived first.
pub(crate) fn mark<'a>(items: impl Iterator<Item = &'a mut QueueItem>, device: &DeviceState) {
    // The allocations whose contents no item reads behind the one that is looked at.
    let mut unread = IdSet::<AllocId>::default();
    for item in items {
        if let Work::Free { id, .. } = &item.work {
            unread.insert(*id);
        }
        let is_unread = |used: &Use| used.access == Access::Read || unread.contains(&used.base);
        if item.cancelled == Cancelled::Dead {
            continue;
        }
        if item.may_be_skipped(device) && item.uses.iter().all(is_unread) {
            item.cancelled = Cancelled::Dead;
            continue;
        }
        let mut reads = |used: &Use| _ = unread.remove(&used.base);
        match &item.work {
            Work::Graph(graph) => graph.uses(reads),
            // A kernel may read what it writes.
            Work::Launch(_) => item.uses.iter().for_each(reads),
            _ => {
                let is_read = |used: &&Use| used.access == Access::Read;
                item.uses.iter().filter(is_read).for_each(&mut reads);
            }
        }
    }
}
