//! Where something waits between two operations.

use std::{
    fmt::Display,
    sync::{Mutex, PoisonError},
};

use crate::done;

/// Something that is there but while an operation has it.
pub struct Place<T>(Mutex<Option<T>>);

impl<T> Place<T> {
    /// With something in it.
    pub const fn new(content: T) -> Self {
        Self(Mutex::new(Some(content)))
    }

    /// Lends it to `run`, which gives it back.
    pub fn lend<E: Display>(&self, run: impl FnOnce(T) -> Result<T, E>) {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *place = place.take().map(|content| done(run(content)));
    }
}
