//! Whether the device is lost, and by what.

use std::sync::atomic::{AtomicBool, Ordering};

use cuda_core::{Error, Result};
use parking_lot::Mutex;

/// The first error that a kernel met. Cheap to ask while there is none.
#[derive(Default)]
pub(crate) struct Lost {
    is: AtomicBool,
    by: Mutex<Option<Error>>,
}

impl Lost {
    pub(crate) fn set(&self, error: Error) {
        self.by.lock().get_or_insert(error);
        self.is.store(true, Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        let mut by = self.by.lock();
        *by = None;
        self.is.store(false, Ordering::Release);
    }

    pub(crate) fn check(&self) -> Result<()> {
        if !self.is.load(Ordering::Acquire) {
            return Ok(());
        }
        self.by.lock().clone().map_or(Ok(()), Err)
    }
}
