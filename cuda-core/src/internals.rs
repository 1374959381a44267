//! Items that only the sister crates of this workspace use. They may change in any release.
//!
//! | for | items |
//! |---|---|
//! | `cuda-async`: the recordings behind its graphs and plans | [`Recording`], [`RecordedNode`], [`name_recorded`], [`start_plan`], [`end_plan`], the limits |
//! | `cuda-async`: the streams and the waits of a run | [`Window`], [`lend_branch`], [`allocating_in`], [`join_parts`], [`cancel`], [`request_report`], [`report_before_others`], [`check_not_lost`], [`check_may_wait`], [`delivers_here`], [`idle_pinned`], [`attachment`] |
//! | `cuda-async` and the backends: code that loom models run | [`sync`] |
//! | `cuda-cpu`, `cuda-driver`, `cuda-node`: tables with ids of clients | [`IdMap`], [`IdSet`] |
//! | `cuda-cpu`, `cuda-lease`, `cuda-node`: text with a limit | [`text_prefix`] |
//! | tests of `cuda-driver`, which run the client on a simulated driver | [`LaunchResources`], [`Retain`], the other functions |

use crate::{Allocation, Device, Result, Ticket, protocol::AllocId};
pub use crate::{
    handle::{
        LaunchResources, MAX_INSTANCES, MAX_RECORDED_BYTES, RecordedName, RecordedNode, Recording,
        Window, allocating_in, cancel, check_not_lost, end_plan, idle_pinned, join_parts,
        lend_branch, name_recorded, report_before_others, request_report, start_plan,
    },
    id_map::{IdMap, IdSet},
    order::Retain,
};

/// Returns the value that a layer above stores in a device. The first call creates it with `T::default()`. A device
/// holds one such value: returns `None` if it has another type than `T`.
///
/// ```
/// # use cuda_core::{*, internals::attachment};
/// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// let count = attachment::<AtomicU32>(&device).expect("it is the first");
/// count.fetch_add(1, Ordering::Relaxed);
/// assert_eq!(attachment::<AtomicU32>(&device).map(|count| count.load(Ordering::Relaxed)), Some(1));
/// assert!(attachment::<String>(&device).is_none()); // the device holds a value of another type
/// # Ok::<(), Error>(())
/// ```
pub fn attachment<T: Default + Send + Sync + 'static>(device: &Device) -> Option<&T> {
    device.core().attachment.get_or_init(|| Box::new(T::default())).downcast_ref()
}

/// Returns whether the calling thread is delivering the notices of a device, as it is inside a waker. Such a thread
/// must not wait for a notice of this device: no other thread delivers it.
pub fn delivers_here(device: &Device) -> bool {
    device.core().streams.delivers_here()
}

/// Checks that the calling thread may wait for a device.
///
/// # Errors
/// [`Error::Misuse`](crate::Error::Misuse) inside the [output function](Device::set_output), which the kernel that
/// prints waits for, and on a thread that alone delivers the device's notices and replies.
pub fn check_may_wait(device: &Device) -> Result<()> {
    device.core().streams.check_may_wait()
}

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
