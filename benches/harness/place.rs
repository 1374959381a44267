//! Storage for a value between two operations.

use std::{
    fmt::Display,
    sync::{Mutex, PoisonError},
};

use crate::done;

/// Holds a value that operations take and return.
pub struct Place<T>(Mutex<Option<T>>);

impl<T> Place<T> {
    /// Creates a place that holds `content`.
    pub const fn new(content: T) -> Self {
        Self(Mutex::new(Some(content)))
    }

    /// Passes the value to `run` and stores the value that it returns. The place stays empty after an error.
    pub fn lend<E: Display>(&self, run: impl FnOnce(T) -> Result<T, E>) {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *place = place.take().map(|content| done(run(content)));
    }
}
