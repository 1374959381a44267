//! The text that kernels print, where the device sends it to the client.

use std::{
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use parking_lot::RwLock;

use crate::sync::discard_panic;

type Print = dyn Fn(&str) + Send + Sync;

/// Where the text goes: to a function of the user, or to standard output.
#[derive(Default)]
pub(crate) struct Output(RwLock<Option<Arc<Print>>>);

impl Output {
    /// Replaces the function.
    pub(crate) fn set(&self, print: Arc<Print>) {
        let previous = self.0.write().replace(print);
        drop(previous);
    }

    /// Prints. Nothing is printed if standard output is closed, or if the function panics.
    pub(crate) fn print(&self, text: &str) {
        let print = self.0.read().clone();
        let Some(print) = print else {
            _ = std::io::stdout().write_all(text.as_bytes());
            return;
        };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| print(text))) {
            discard_panic(payload);
        }
    }
}
