//! The runtime of a device: its streams, its memory accounting, delivery of notices, and reclaiming of what was dropped.
//!
//! Uses `protocol`, `order` and `sync`; the types in `handle`, which users hold, are built on it. A submission of a
//! handle passes [`device_core`] to its backend; the way back begins in [`streams`], which takes the backend's notices,
//! advances `order::timeline` and so wakes the tasks that wait.

pub(crate) mod device_core;
mod host_pool;
mod inbox;
mod loaded_modules;
mod memory_charge;
mod memory_waiters;
mod peers;
mod reclaim;
mod reply;
mod retire;
mod spare_streams;
mod streams;

pub use host_pool::HOST_POOL_LIMIT;
pub(crate) use host_pool::Lease;
#[cfg(all(test, loom))]
pub(crate) use memory_charge::MemoryCharge;
pub(crate) use reclaim::Freed;
pub use reply::Pending;
pub(crate) use reply::unexpected;
