//! loom's locks with parking_lot's signatures, and its atomics with sequential consistency.
//!
//! loom has no clock. A wait with a time limit below [`SHORT`] returns at once. A wait with a longer limit returns only
//! when it is notified, so loom reports a lost wake as a deadlock.
#![allow(missing_docs)] // parking_lot and std document the same items

use std::{
    fmt,
    ops::{Deref, DerefMut},
    time::{Duration, Instant},
};

pub use loom::hint::spin_loop;

pub mod atomic;

/// Waits that are shorter end at once.
const SHORT: Duration = Duration::from_millis(10);

/// Always the same moment.
pub fn now() -> Instant {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    *START
}

/// Checks a model with at most this many preemptions.
pub fn check_model(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 20_000;
    builder.check(model);
}

/// Unwraps a lock result. loom's locks are never poisoned, because a panic ends the model.
fn lock<T, E>(locked: Result<T, E>) -> T {
    match locked {
        Ok(guard) => guard,
        Err(_) => unreachable!("loom's locks do not poison"),
    }
}

#[derive(Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

pub struct MutexGuard<'a, T> {
    mutex: &'a loom::sync::Mutex<T>,
    /// None only while a condition variable waits.
    held: Option<loom::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: &self.0, held: Some(lock(self.0.lock())) }
    }

    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = self.0.try_lock().ok()?;
        Some(MutexGuard { mutex: &self.0, held: Some(held) })
    }

    pub fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    pub fn get_mut(&mut self) -> &mut T {
        lock(self.0.get_mut())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.held {
            Some(guard) => guard,
            None => unreachable!("the guard is not used while it waits"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.held {
            Some(guard) => guard,
            None => unreachable!("the guard is not used while it waits"),
        }
    }
}

#[derive(Default, Debug)]
pub struct Condvar(loom::sync::Condvar);

/// The end of a wait with a limit.
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub fn new() -> Self {
        Self::default()
    }

    #[track_caller]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.held = guard.held.take().map(|held| lock(self.0.wait(held)));
    }

    #[track_caller]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, most: Duration) -> WaitTimeoutResult {
        if most >= SHORT {
            self.wait(guard);
        } else {
            guard.held = None;
            loom::thread::yield_now();
            guard.held = Some(lock(guard.mutex.lock()));
        }
        WaitTimeoutResult(most < SHORT)
    }

    #[track_caller]
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, end: Instant) -> WaitTimeoutResult {
        self.wait_for(guard, end.saturating_duration_since(now()))
    }

    #[track_caller]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    #[track_caller]
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[derive(Default)]
pub struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }

    #[track_caller]
    pub fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
        lock(self.0.read())
    }

    #[track_caller]
    pub fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
        lock(self.0.write())
    }

    pub fn get_mut(&mut self) -> &mut T {
        lock(self.0.get_mut())
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLock")
    }
}
