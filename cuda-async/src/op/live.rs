//! `Live`: the state of steps, until they end.

use cuda_core::{Error, Result};

/// The state of a state machine. It is absent once the steps have ended, or while a transition is in progress: steps
/// that panic in a transition stay ended.
#[derive(Clone)]
pub struct Live<S>(Option<S>);

impl<S> Live<S> {
    #[inline]
    /// Begins with a state.
    pub const fn new(state: S) -> Self {
        Self(Some(state))
    }

    /// Borrows the state.
    ///
    /// # Errors
    /// [`Error::AlreadyEnded`] if the steps have ended.
    #[inline]
    pub fn get(&mut self) -> Result<&mut S> {
        self.0.as_mut().ok_or(Error::AlreadyEnded)
    }

    /// Takes the state and leaves the steps ended.
    ///
    /// # Errors
    /// [`Error::AlreadyEnded`] if the steps have ended.
    #[inline]
    pub fn take(&mut self) -> Result<S> {
        self.0.take().ok_or(Error::AlreadyEnded)
    }

    /// Consumes the steps and returns the state, or `None` if they have ended.
    #[inline]
    pub fn into_state(self) -> Option<S> {
        self.0
    }

    /// Stores the next state and borrows it.
    #[inline]
    pub fn set(&mut self, state: S) -> &mut S {
        self.0.insert(state)
    }

    /// Drops the state and leaves the steps ended.
    #[inline]
    pub fn end(&mut self) {
        self.0 = None;
    }

    /// The state, or `None` if the steps have ended.
    #[inline]
    pub fn peek(&self) -> Option<&S> {
        self.0.as_ref()
    }
}
