//! The runtime of a device: its streams, its memory accounting, delivery of notices, and reclaiming of what was
//! dropped.
//!
//! Uses `protocol`, `order` and `sync`; the types in `handle`, which users hold, are built on it. A handle submits to
//! the backend of its [`device_core`]. The backend's notices arrive in [`streams`], which advances `order::timeline`
//! and so wakes the waiting tasks.

pub(crate) mod device_core;
mod host_pool;
mod loaded_modules;
mod memory;
mod reclaim;
mod reply;
mod streams;

pub use host_pool::HOST_POOL_LIMIT;
pub(crate) use host_pool::PooledBlock;
pub(crate) use loaded_modules::Found;
#[cfg(all(test, loom))]
pub(crate) use memory::MemoryCharge;
pub(crate) use memory::PoolCore;
pub(crate) use reclaim::{Cancelled, Freed, Origin};
pub use reply::Pending;
pub(crate) use reply::unexpected;
