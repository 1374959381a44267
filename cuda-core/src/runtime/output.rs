//! The text that kernels print, where the device sends it to the client.

use std::{
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::ThreadId,
};

use parking_lot::RwLock;

use crate::{
    protocol::{Error, Result},
    sync::{Mutex, discard_panic},
};

type Print = dyn Fn(&str) + Send + Sync;

/// Where the text goes: to a function of the user, or to standard output.
#[derive(Default)]
pub(crate) struct Output {
    print: RwLock<Option<Arc<Print>>>,
    /// The threads that are inside the function now. The kernels that print go on when it returns.
    printing: Mutex<Vec<ThreadId>>,
    /// The number of these threads, so that other threads need no lock.
    count: AtomicUsize,
}

impl Output {
    /// Replaces the function.
    pub(crate) fn set(&self, print: Arc<Print>) {
        let previous = self.print.write().replace(print);
        drop(previous);
    }

    /// Prints. Nothing is printed if standard output is closed, or if the function panics.
    pub(crate) fn print(&self, text: &str) {
        let print = self.print.read().clone();
        let Some(print) = print else {
            _ = std::io::stdout().write_all(text.as_bytes());
            return;
        };
        let this = std::thread::current().id();
        self.printing.lock().push(this);
        self.count.fetch_add(1, Ordering::Relaxed);
        let printed = catch_unwind(AssertUnwindSafe(|| print(text)));
        self.count.fetch_sub(1, Ordering::Relaxed);
        let mut printing = self.printing.lock();
        if let Some(at) = printing.iter().rposition(|thread| *thread == this) {
            printing.swap_remove(at);
        }
        drop(printing);
        if let Err(payload) = printed {
            discard_panic(payload);
        }
    }

    /// Checks that the calling thread may wait for the device.
    ///
    /// # Errors
    /// [`Error::Misuse`] inside the function: the kernel that prints ends after the function, so the wait would not end.
    #[inline]
    pub(crate) fn check_may_wait(&self) -> Result<()> {
        // Relaxed: the thread itself has counted.
        if self.count.load(Ordering::Relaxed) == 0 { Ok(()) } else { self.check_this_thread() }
    }

    #[cold]
    fn check_this_thread(&self) -> Result<()> {
        if !self.printing.lock().contains(&std::thread::current().id()) {
            return Ok(());
        }
        let detail = "it is inside the output function of the device, whose kernel ends only after the function; wait on another thread".into();
        Err(Error::Misuse { what: "a wait for the device".into(), detail })
    }
}
