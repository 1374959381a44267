//! Work that is done once, a turn at a time, by whoever comes; its result is for all. Knows no device.
//!
//! # Who may touch what
//! The work is taken out for a turn and put back after it, so no lock is held while it runs. A member enters
//! its waker *before* it looks at the state: whatever changes that from then on wakes it. Wakers are cloned, woken
//! and dropped without the lock.

use std::{
    sync::Arc,
    task::{Wake, Waker},
};

use cuda_core::sync::{Mutex, wake_each};

/// One of those who want the result `R` of the work `W`. Clones want it too.
pub(super) struct Member<W, R> {
    once: Arc<Once<W, R>>,
    /// Its place among the wakers, if it waits.
    place: Option<u64>,
}

struct Once<W, R> {
    state: Mutex<State<W, R>>,
    waiting: Arc<Waiting>,
    /// The result where a turn panicked.
    broken: fn() -> R,
}

enum State<W, R> {
    Waiting(W),
    Running,
    Ended(R),
}

/// What a turn came to.
pub(super) enum Turn<W, R> {
    /// There is more to do once the waker that it was given is woken.
    Pending(W),
    /// The result.
    Ended(R),
}

impl<W, R: Clone> Member<W, R> {
    pub(super) fn new(work: W, broken: fn() -> R) -> Self {
        let state = Mutex::new(State::Waiting(work));
        Self { once: Arc::new(Once { state, waiting: Arc::default(), broken }), place: None }
    }

    /// The result, if it is there, or once `turn` has made it; otherwise `waker` is woken when it makes sense to
    /// come again.
    ///
    /// # Errors
    /// That of a turn that could not be begun and gave the work back; the next who comes may do better.
    pub(super) fn poll<E>(
        &mut self,
        waker: &Waker,
        turn: impl FnOnce(W, &Waker) -> Result<Turn<W, R>, (W, E)>,
    ) -> Result<Option<R>, E> {
        self.place = Some(self.once.waiting.enter(self.place, waker));
        let wakes = self.once.waiting.wakes();
        if let Some(work) = self.once.begin() {
            let mut running = Running { once: &self.once, wakes, put_back: None };
            let (put_back, error) = match turn(work, &Waker::from(self.once.waiting.clone())) {
                Ok(Turn::Pending(work)) => (State::Waiting(work), None),
                Ok(Turn::Ended(result)) => (State::Ended(result), None),
                Err((work, error)) => (State::Waiting(work), Some(error)),
            };
            running.put_back = Some(put_back);
            drop(running);
            error.map_or(Ok(()), Err)?;
        }
        Ok(self.once.result())
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
    /// The work, if nobody has it.
    fn begin(&self) -> Option<W> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Running) {
            State::Waiting(work) => Some(work),
            other => {
                *state = other;
                None
            }
        }
    }

    fn result(&self) -> Option<R> {
        match &*self.state.lock() {
            State::Ended(result) => Some(result.clone()),
            _ => None,
        }
    }
}

/// A turn. If it panics, everyone is told that the work has ended.
struct Running<'a, W, R> {
    once: &'a Once<W, R>,
    /// How often there was a wake before this began.
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
        Self { once: self.once.clone(), place: None }
    }
}

impl<W, R> Drop for Member<W, R> {
    /// Whoever else waits goes on.
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.once.waiting.leave(place);
        }
    }
}

/// The wakers of those who wait.
#[derive(Default)]
struct Waiting(Mutex<Places>);

#[derive(Default)]
struct Places {
    wakers: Vec<(u64, Waker)>,
    next: u64,
    /// How often all were woken.
    wakes: u64,
}

impl Places {
    /// A waker, to be dropped without the lock: with it may go a task, and with that another clone.
    fn take(&mut self, place: u64) -> Option<(u64, Waker)> {
        let found = self.wakers.iter().position(|(other, _)| *other == place)?;
        Some(self.wakers.swap_remove(found))
    }
}

impl Waiting {
    fn enter(&self, place: Option<u64>, waker: &Waker) -> u64 {
        let waker = waker.clone();
        let mut places = self.0.lock();
        let place = place.unwrap_or_else(|| {
            places.next += 1;
            places.next
        });
        let replaced = places.take(place);
        places.wakers.push((place, waker));
        drop(places);
        drop(replaced);
        place
    }

    fn leave(&self, place: u64) {
        let left = self.0.lock().take(place);
        self.wake_all();
        drop(left);
    }

    fn wakes(&self) -> u64 {
        self.0.lock().wakes
    }

    fn wake_all(&self) {
        let woken = {
            let mut places = self.0.lock();
            places.wakes += 1;
            std::mem::take(&mut places.wakers)
        };
        wake_each(woken.into_iter().map(|(_, waker)| waker));
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

#[cfg(all(test, loom))]
mod loom_models;
