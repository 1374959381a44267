//! Items that only the sister crates of this workspace use. They may change in any release.
//!
//! | for | items |
//! |---|---|
//! | `cuda-async`: the recordings behind its graphs | [`Recording`], [`RecordedNode`], [`RecordedName`], the limits |
//! | `cuda-async` and the backends: code that loom models run | [`sync`] |
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
