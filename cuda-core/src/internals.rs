//! Items that only the sister crates of this workspace use. They may change in any release.
//!
//! | for | items |
//! |---|---|
//! | `cuda-async`: the recordings behind its graphs | [`Recording`], [`RecordedNode`], [`RecordedName`], the limits |
//! | `cuda-async` and the backends: code that loom models run | [`sync`] |
//! | `cuda-cpu`, `cuda-lease`, `cuda-node`: text with a limit | [`text_prefix`] |
//! | tests of `cuda-driver`, which run the client on a simulated driver | [`LaunchResources`], [`Retain`], the functions |

use crate::{Allocation, Device, Ticket, protocol::AllocId};
pub use crate::{
    handle::{
        LaunchResources, MAX_INSTANCES, MAX_RECORDED_BYTES, RecordedName, RecordedNode, Recording,
    },
    order::Retain,
};

/// Locks, condition variables, atomics, wakers and helper threads, which loom can replace.
pub mod sync {
    pub use crate::sync::*;
}

/// Asks for a report of progress as soon as a ticket is complete.
pub fn want(device: &Device, ticket: Ticket) {
    device.core().want(ticket);
}

/// Gives the dropped resources of a device back to its backend.
pub fn reclaim_all(device: &Device) {
    device.core().reclaim_all();
}

/// Frees the dropped memory of a device.
pub fn recover_memory(device: &Device) {
    device.core().recover_memory();
}

/// Returns the bytes that the client has charged for allocations outside of pools.
pub fn charged_bytes(device: &Device) -> u64 {
    device.core().charge.own().0
}

/// Returns the id of an allocation.
pub fn allocation_id(allocation: &Allocation) -> AllocId {
    allocation.id()
}

/// Returns whether all uses of an allocation are complete.
pub fn is_settled(allocation: &Allocation) -> bool {
    allocation.is_settled()
}

/// Returns the longest prefix of a text that has at most `max_bytes` bytes.
pub fn text_prefix(text: &str, max_bytes: usize) -> &str {
    // `str::floor_char_boundary` is newer than the oldest supported compiler.
    let mut end = max_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::text_prefix;

    #[test]
    fn text_prefix_ends_between_characters() {
        let text = "a\u{e9}b";
        let prefixes = [0, 1, 2, 3, 4, 9].map(|max_bytes| text_prefix(text, max_bytes));
        assert_eq!(prefixes, ["", "a", "a", "a\u{e9}", text, text]);
    }
}
