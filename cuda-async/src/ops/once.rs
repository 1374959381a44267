//! `Once`: work that several members share. One member polls it at a time, and each of them gets the result.
//! Independent of devices.
//!
//! # Rules
//! A member takes the work out to poll it and puts it back, so no lock is held while the work runs. A member stores
//! its waker *before* it reads the state, so every later change of the state wakes it. Wakers are cloned, woken
//! and dropped without the lock.

use std::{
    sync::Arc,
    task::{Wake, Waker},
};

use cuda_core::internals::sync::{Mutex, WakerSet};

use super::boxed::on_enough_stack;

/// A handle to the result `R` of the work `W`. Clones share the work.
pub(super) struct Member<W, R> {
    once: Arc<Once<W, R>>,
    /// The key of its waker, if it has stored one.
    key: Option<u64>,
}

struct Once<W, R> {
    state: Mutex<State<W, R>>,
    waiting: Arc<Waiting>,
    /// Makes the result if a poll panics.
    broken: fn() -> R,
}

enum State<W, R> {
    Waiting(W),
    Running,
    Ended(R),
}

/// The result of a poll of the work.
pub(super) enum Polled<W, R> {
    /// The work continues after the waker of the poll is woken.
    Pending(W),
    Ended(R),
}

impl<W, R: Clone> Member<W, R> {
    pub(super) fn new(work: W, broken: fn() -> R) -> Self {
        let state = Mutex::new(State::Waiting(work));
        Self { once: Arc::new(Once { state, waiting: Arc::default(), broken }), key: None }
    }

    /// Returns the result. If there is none yet and no other member polls the work, calls `poll_work`. `waker` is
    /// woken when this member should poll again.
    ///
    /// # Errors
    /// The error of a poll that could not begin. The work is kept, and another member may try.
    pub(super) fn poll<E>(
        &mut self,
        waker: &Waker,
        poll_work: impl FnOnce(W, &Waker) -> Result<Polled<W, R>, (W, E)>,
    ) -> Result<Option<R>, E> {
        self.key = Some(self.once.waiting.enter(self.key, waker));
        let wakes = self.once.waiting.wakes();
        if let Some(work) = self.once.begin() {
            let mut running = Running { once: &self.once, wakes, put_back: None };
            let (put_back, error) = match poll_work(work, &Waker::from(self.once.waiting.clone())) {
                Ok(Polled::Pending(work)) => (State::Waiting(work), None),
                Ok(Polled::Ended(result)) => (State::Ended(result), None),
                Err((work, error)) => (State::Waiting(work), Some(error)),
            };
            running.put_back = Some(put_back);
            drop(running);
            error.map_or(Ok(()), Err)?;
        }
        Ok(self.once.result())
    }

    /// A number that no other work has while this work exists.
    pub(super) fn id(&self) -> usize {
        Arc::as_ptr(&self.once).addr()
    }

    /// Whether a member polls the work now.
    pub(super) fn is_running(&self) -> bool {
        matches!(*self.once.state.lock(), State::Running)
    }

    /// The name of the state.
    pub(super) fn state(&self) -> &'static str {
        match *self.once.state.lock() {
            State::Waiting(_) => "waiting",
            State::Running => "running",
            State::Ended(_) => "ended",
        }
    }
}

impl<W, R: Clone> Once<W, R> {
    /// Takes the work, if no member has it.
    fn begin(&self) -> Option<W> {
        let mut state = self.state.lock();
        if !matches!(*state, State::Waiting(_)) {
            return None;
        }
        match std::mem::replace(&mut *state, State::Running) {
            State::Waiting(work) => Some(work),
            State::Running | State::Ended(_) => None,
        }
    }

    fn result(&self) -> Option<R> {
        match &*self.state.lock() {
            State::Ended(result) => Some(result.clone()),
            State::Running | State::Waiting(_) => None,
        }
    }
}

/// A poll of the work. If it panics, the work has ended for all members.
struct Running<'a, W, R> {
    once: &'a Once<W, R>,
    /// The number of wakes before the poll began.
    wakes: u64,
    put_back: Option<State<W, R>>,
}

impl<W, R> Drop for Running<'_, W, R> {
    fn drop(&mut self) {
        let state = self.put_back.take().unwrap_or_else(|| State::Ended((self.once.broken)()));
        let ended = matches!(state, State::Ended(_));
        *self.once.state.lock() = state;
        if ended || self.once.waiting.wakes() != self.wakes {
            self.once.waiting.wake_all();
        }
    }
}

impl<W, R> Clone for Member<W, R> {
    fn clone(&self) -> Self {
        Self { once: self.once.clone(), key: None }
    }
}

impl<W, R> Drop for Member<W, R> {
    /// Wakes the other members, because this one may have received the only wake.
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.once.waiting.leave(key);
        }
    }
}

/// The wakers of the members that wait.
#[derive(Default)]
struct Waiting(Mutex<Members>);

#[derive(Default)]
struct Members {
    wakers: WakerSet<u64>,
    next: u64,
    /// The number of times that all were woken.
    wakes: u64,
}

impl Waiting {
    fn enter(&self, key: Option<u64>, waker: &Waker) -> u64 {
        let waker = waker.clone();
        let mut members = self.0.lock();
        let key = key.unwrap_or_else(|| {
            members.next += 1;
            members.next
        });
        let replaced = members.wakers.insert(key, waker);
        drop(members);
        drop(replaced);
        key
    }

    fn leave(&self, key: u64) {
        let left = self.0.lock().wakers.remove(&key);
        self.wake_all();
        drop(left);
    }

    fn wakes(&self) -> u64 {
        self.0.lock().wakes
    }

    fn wake_all(&self) {
        let woken = {
            let mut members = self.0.lock();
            members.wakes += 1;
            members.wakers.take_all()
        };
        // A waker of this work may wake other shared work, and so on. Each level needs stack.
        on_enough_stack(|| woken.wake());
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

#[cfg(all(test, loom))]
mod loom_models;
