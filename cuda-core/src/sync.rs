//! Locks, condition variables and atomics: everything here and in `cuda-async` that several threads change is
//! made of these, so that loom can run the code itself.
//!
//! Without `cfg(loom)` they are parking_lot's and std's, at no cost. With it (see CONTRIBUTING.md) they are
//! `modelled`: the same names and signatures, every use a point where loom may switch threads. What is a
//! `static`, or what no model uses, stays as it is, for loom's can only be made while a model runs. `Arc` is std's
//! also in models: its count is no part of any protocol here but `Streams::remove_unused`, which holds a lock.

#[cfg(not(loom))]
pub use parking_lot::{Condvar, Mutex, RwLock};
#[cfg(not(loom))]
pub use std::{hint::spin_loop, sync::atomic};

/// The time; in models it stands still.
#[cfg(not(loom))]
#[inline]
pub fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(loom)]
mod modelled;
#[cfg(loom)]
pub use modelled::*;

/// A limit, or in models a small one that they can reach.
pub const fn limit(normal: usize, modelled: usize) -> usize {
    if cfg!(loom) { modelled } else { normal }
}
