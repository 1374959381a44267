//! The runtime of a device: its streams, its memory accounting, delivery of notices, and reclaiming of what was
//! dropped.
//!
//! Uses `protocol`, `order` and `sync`; the types in `handle`, which users hold, are built on it. A handle submits to
//! the backend of its [`device_core`]. The backend's notices arrive in [`streams`], which advances `order::timeline`
//! and so wakes the waiting tasks.

pub(crate) mod device_core;
mod dropped;
mod host_pool;
mod loaded_modules;
mod memory;
mod peers;
mod pools;
mod reclaim;
mod reply;
mod streams;

pub(crate) use dropped::{Freed, Origin};
pub use host_pool::HOST_POOL_LIMIT;
pub(crate) use host_pool::PooledBlock;
pub(crate) use loaded_modules::Found;
#[cfg(all(test, loom))]
pub(crate) use memory::MemoryCharge;
pub(crate) use pools::PoolCore;
pub use reply::Pending;
pub(crate) use reply::unexpected;
