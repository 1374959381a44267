//! State that exists once per device and process: the primary context and its loss, the pools of device and host
//! memory, and the queue of resources to reclaim.
//!
//! Uses `driver`, `protocol` and `sync`. Every folder above binds the context with [`Primary::bind`] before it calls
//! the driver, and gives dropped resources to [`ReclaimQueue`].

mod bound;
mod device_kernels;
mod id_cache;
mod memory_pools;
mod primary;
mod reclaim;

pub(crate) use bound::Bound;
pub(crate) use device_kernels::DeviceClock;
pub(crate) use id_cache::IdCache;
pub(crate) use memory_pools::MemoryPool;
pub(crate) use primary::Primary;
pub(crate) use reclaim::{ReclaimQueue, Reclaimable};
