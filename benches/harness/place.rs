//! Storage for a value between two operations.

use std::{
    fmt::Display,
    sync::{Mutex, PoisonError},
};

use crate::done;

/// Holds a value that operations borrow by taking it and returning it.
pub struct Place<T>(Mutex<Option<T>>);

impl<T> Place<T> {
    /// Makes a place that holds `content`.
    pub const fn new(content: T) -> Self {
        Self(Mutex::new(Some(content)))
    }

    /// Passes the value to `run`, which returns it. Empty after an error.
    pub fn lend<E: Display>(&self, run: impl FnOnce(T) -> Result<T, E>) {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *place = place.take().map(|content| done(run(content)));
    }
}
