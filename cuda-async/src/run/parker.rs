//! A waker that unparks the thread that made it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
    thread::Thread,
};

/// Lets one thread sleep until its waker is called.
pub(super) struct Parker {
    state: Arc<State>,
    waker: Waker,
}

struct State {
    thread: Thread,
    woken: AtomicBool,
}

impl Parker {
    /// A parker for the calling thread.
    pub(super) fn new() -> Self {
        let state = State { thread: std::thread::current(), woken: AtomicBool::new(false) };
        let state = Arc::new(state);
        Self { waker: Waker::from(state.clone()), state }
    }

    /// A task context whose waker unparks the thread.
    pub(super) fn task(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }

    /// Sleeps until the waker is called; returns at once if it was called since the last sleep.
    pub(super) fn park(&self) {
        while !self.state.woken.swap(false, Ordering::AcqRel) {
            std::thread::park();
        }
    }
}

impl Wake for State {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
