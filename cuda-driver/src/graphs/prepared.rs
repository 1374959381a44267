//! Objects that the helper thread prepares: modules and graphs.
//!
//! An object exists from the control that creates it. Its state is pending, ready or failed. A caller that needs it
//! earlier blocks; a client avoids this by waiting for the reply to a request first.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cuda_core::{
    internals::sync::discard_panic,
    protocol::{Answer, Error, Reply, Result},
};
use parking_lot::{Condvar, MappedMutexGuard, Mutex, MutexGuard};

/// An object that is being prepared, is ready, or has failed.
pub(crate) struct Prepared<T> {
    state: Mutex<State<T>>,
    ended: Condvar,
}

enum State<T> {
    /// Holds the requests to answer when the preparation ends.
    Pending(Vec<Answer>),
    Ready(T),
    Failed(Error),
}

/// An object with a reply to the requests that wait for it.
pub(crate) trait Replies {
    fn reply(&self) -> Reply;
}

impl<T: Replies> Prepared<T> {
    pub(crate) fn pending() -> Self {
        Self { state: Mutex::new(State::Pending(Vec::new())), ended: Condvar::new() }
    }

    /// Ends the preparation, and answers the requests that wait for it.
    pub(crate) fn end(&self, prepared: Result<T>) {
        let ended = prepared.map_or_else(State::Failed, State::Ready);
        let (answers, reply) = {
            let mut state = self.state.lock();
            let before = std::mem::replace(&mut *state, ended);
            self.ended.notify_all();
            let State::Pending(answers) = before else { return };
            (answers, state.reply())
        };
        let Some(reply) = reply else { return };
        for answer in answers {
            let give = || answer.give(reply.clone());
            if let Err(payload) = catch_unwind(AssertUnwindSafe(give)) {
                discard_panic(payload);
            }
        }
    }

    /// Answers when the preparation has ended. Never blocks.
    pub(crate) fn answer(&self, answer: Answer) {
        let mut state = self.state.lock();
        if let State::Pending(answers) = &mut *state {
            answers.push(answer);
            return;
        }
        let reply = state.reply();
        drop(state);
        if let Some(reply) = reply {
            answer.give(reply);
        }
    }

    /// Whether the preparation has not ended.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(&*self.state.lock(), State::Pending(_))
    }

    /// The object, if it is ready.
    pub(crate) fn ready(&self) -> Option<MappedMutexGuard<'_, T>> {
        MutexGuard::try_map(self.state.lock(), State::object).ok()
    }

    /// The object. Blocks while it is being prepared.
    ///
    /// # Errors
    /// The error of the preparation.
    pub(crate) fn wait(&self) -> Result<MappedMutexGuard<'_, T>> {
        let mut state = self.state.lock();
        self.ended.wait_while(&mut state, |state| matches!(state, State::Pending(_)));
        MutexGuard::try_map(state, State::object).map_err(|state| match &*state {
            State::Failed(error) => error.clone(),
            State::Pending(_) | State::Ready(_) => Error::AlreadyEnded,
        })
    }

    /// Fails the object. Later calls get the error.
    pub(crate) fn fail(&self, error: Error) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Failed(error));
        drop(before);
    }
}

impl<T> State<T> {
    fn object(&mut self) -> Option<&mut T> {
        match self {
            State::Ready(object) => Some(object),
            State::Pending(_) | State::Failed(_) => None,
        }
    }
}

impl<T: Replies> State<T> {
    /// The reply. `None` before the preparation has ended.
    fn reply(&self) -> Option<Result<Reply>> {
        match self {
            State::Pending(_) => None,
            State::Ready(object) => Some(Ok(object.reply())),
            State::Failed(error) => Some(Err(error.clone())),
        }
    }
}
