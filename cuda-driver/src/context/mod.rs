//! State that exists once per device and process: the primary context and its loss, the pools of device and host
//! memory, and the queue of resources to reclaim.
//!
//! Uses `driver`, `protocol` and `sync`. Every folder above binds the context with [`Primary::bind`] before it calls
//! the driver, and gives dropped resources to [`ReclaimQueue`].

mod bound;
mod clock;
mod condition;
mod device_pools;
mod host_pool;
mod id_cache;
mod lost;
mod named_pools;
mod pool;
mod primary;
mod reclaim;
mod stream_reserve;

pub(crate) use bound::Bound;
pub(crate) use clock::DeviceClock;
pub(crate) use device_pools::DroppedPool;
pub(crate) use id_cache::IdCache;
pub(crate) use pool::MemoryPool;
pub(crate) use primary::Primary;
pub(crate) use reclaim::{ReclaimQueue, Reclaimable};
