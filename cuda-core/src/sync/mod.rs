//! Locks, condition variables, atomics, wakers and helper threads. The lowest layer: it uses nothing of the crate.
//!
//! The protocols between threads that a loom model covers, here and in `cuda-async`, are made of these, so that loom
//! runs the real code. Without `cfg(loom)` they are parking_lot's and std's, at no cost. With it (see CONTRIBUTING.md)
//! they are `modeled`: the same names and signatures, and every use is a point where loom may switch threads. Tables,
//! counters and other values that no model covers use parking_lot and std directly. So does every `static`, because
//! loom's types only exist while a model runs. `Arc` is std's in models too: the only protocol that uses its count is
//! `Streams::remove_unused`, which holds a lock.

#[cfg(not(loom))]
pub use std::{hint::spin_loop, sync::atomic};

#[cfg(not(loom))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

/// The current time; in models it stands still.
#[cfg(not(loom))]
#[inline]
pub fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(loom)]
mod modeled;
#[cfg(loom)]
pub use modeled::*;

/// A limit, or in models a small one that they can reach.
pub const fn limit(normal: usize, modeled: usize) -> usize {
    if cfg!(loom) { modeled } else { normal }
}

mod helper_thread;
mod one_shot;
mod sharded_arc;
mod waker_set;

pub use helper_thread::HelperThread;
pub use one_shot::{Receiver, Sender, one_shot};
pub use sharded_arc::{SHARDS, Sharded, ShardedArc, own_shard};
pub use waker_set::{WakerSet, Woken, discard_panic, wake_each};
