//! `shared`: an operation that runs once and whose output many use.
//!
//! # States
//! - *Waiting*: nobody polls the steps. They may have been polled before, and then have a context.
//! - *Running*: one poller has them; the others leave their wakers and wait.
//! - *Ended*: the result is there for everyone.
//!
//! The steps run in a context of their own, so that it does not matter whose run drives them. What wakes
//! the steps wakes every clone that waits, and a clone that is dropped while it waits wakes the others:
//! whoever comes next goes on. Who was woken while the steps were being polled found nothing to do, and is woken
//! again when they are put back: the one that polled them may never come again.

use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use cuda_core::{Error, Event, Result};
use parking_lot::Mutex;

use crate::{ExecutionContext, Submit};

/// Steps of [`DeviceOp::shared`](crate::DeviceOp::shared). Clones run once together.
pub struct Shared<S: Submit> {
    once: Arc<Once<S>>,
    /// This clone's place among the wakers, if it waits.
    place: Option<u64>,
}

struct Once<S: Submit> {
    state: Mutex<State<S>>,
    waiting: Arc<Waiting>,
}

enum State<S: Submit> {
    Waiting(S, Option<ExecutionContext>),
    Running,
    Ended(Result<Arc<S::Output>>, Option<Arc<Event>>),
}

impl<S: Submit> Shared<S> {
    pub(crate) fn new(steps: S) -> Self {
        let state = Mutex::new(State::Waiting(steps, None));
        Self { once: Arc::new(Once { state, waiting: Arc::default() }), place: None }
    }
}

impl<S: Submit<Output: Sync>> Submit for Shared<S> {
    type Output = Arc<S::Output>;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        // Before the state is looked at, so that whatever changes it from now on wakes this clone.
        self.place = Some(self.once.waiting.enter(self.place, task.waker()));
        let wakes = self.once.waiting.wakes();
        let Some((steps, steps_cx)) = self.once.begin() else {
            return self.once.outcome(cx);
        };
        let running = Running { once: &self.once, wakes, put_back: None };
        if running.poll(steps, steps_cx, cx)?.is_pending() {
            return Poll::Pending;
        }
        self.once.outcome(cx)
    }
}

impl<S: Submit> Once<S> {
    /// The steps, if nobody has them.
    fn begin(&self) -> Option<(S, Option<ExecutionContext>)> {
        let mut state = self.state.lock();
        if !matches!(*state, State::Waiting(..)) {
            return None;
        }
        match std::mem::replace(&mut *state, State::Running) {
            State::Waiting(steps, cx) => Some((steps, cx)),
            _ => None,
        }
    }

    /// The result, if it is there; the run in `cx` comes after the work that made it.
    fn outcome(&self, cx: &ExecutionContext) -> Poll<Result<Arc<S::Output>>> {
        let (result, made) = match &*self.state.lock() {
            State::Ended(result, made) => (result.clone(), made.clone()),
            _ => return Poll::Pending,
        };
        let adopted = made.map_or(Ok(()), |event| cx.adopt(&event));
        Poll::Ready(result.and_then(|output| adopted.map(|()| output)))
    }
}

/// The right to poll the steps. If the poll panics, everyone is told that the operation has ended.
struct Running<'a, S: Submit> {
    once: &'a Once<S>,
    /// How often there was a wake before this began.
    wakes: u64,
    put_back: Option<State<S>>,
}

impl<S: Submit> Running<'_, S> {
    fn poll(
        mut self,
        mut steps: S,
        steps_cx: Option<ExecutionContext>,
        cx: &ExecutionContext,
    ) -> Result<Poll<()>> {
        let steps_cx = match steps_cx.map_or_else(|| cx.own_root(), Ok) {
            Ok(steps_cx) => steps_cx,
            Err(error) => {
                self.put_back = Some(State::Waiting(steps, None));
                return Err(error);
            }
        };
        let waker = Waker::from(self.once.waiting.clone());
        match steps.poll_submit(&mut Context::from_waker(&waker), &steps_cx) {
            Poll::Pending => {
                self.put_back = Some(State::Waiting(steps, Some(steps_cx)));
                Ok(Poll::Pending)
            }
            Poll::Ready(output) => {
                drop(steps);
                self.put_back = Some(match (output, steps_cx.record()) {
                    (Ok(output), Ok(made)) => State::Ended(Ok(Arc::new(output)), made),
                    (Ok(_), Err(error)) => State::Ended(Err(error), None),
                    // What was submitted until then is part of every clone's run.
                    (Err(error), made) => State::Ended(Err(error), made.unwrap_or(None)),
                });
                Ok(Poll::Ready(()))
            }
        }
    }
}

impl<S: Submit> Drop for Running<'_, S> {
    fn drop(&mut self) {
        let panicked = || State::Ended(Err(Error::AlreadyEnded), None);
        let state = self.put_back.take().unwrap_or_else(panicked);
        let ended = matches!(state, State::Ended(..));
        *self.once.state.lock() = state;
        if ended || self.once.waiting.wakes() != self.wakes {
            self.once.waiting.wake_all();
        }
    }
}

impl<S: Submit> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self { once: self.once.clone(), place: None }
    }
}

impl<S: Submit> Drop for Shared<S> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.once.waiting.leave(place);
        }
    }
}

impl<S: Submit> std::fmt::Debug for Shared<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match *self.once.state.lock() {
            State::Waiting(..) => "Shared(waiting)",
            State::Running => "Shared(running)",
            State::Ended(..) => "Shared(ended)",
        })
    }
}

/// The wakers of the clones that wait.
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
        let mut places = self.0.lock();
        let place = place.unwrap_or_else(|| {
            places.next += 1;
            places.next
        });
        let replaced = places.take(place);
        places.wakers.push((place, waker.clone()));
        drop(places);
        drop(replaced);
        place
    }

    fn leave(&self, place: u64) {
        let left = self.0.lock().take(place);
        drop(left);
        self.wake_all();
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
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}
