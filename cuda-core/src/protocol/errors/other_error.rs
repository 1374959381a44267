//! Errors that are not this library's own.

use std::{error::Error as StdError, sync::Arc};

/// An error of the program, inside [`Error::Other`](crate::Error::Other). Clones share it, and two are equal if they
/// share one error.
#[derive(Clone)]
pub struct OtherError(Arc<dyn StdError + Send + Sync>);

impl OtherError {
    pub(super) fn new(error: Box<dyn StdError + Send + Sync>) -> Self {
        Self(error.into())
    }

    /// Returns the error of the program.
    pub fn get(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.0
    }
}

impl PartialEq for OtherError {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for OtherError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Display for OtherError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for OtherError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}
