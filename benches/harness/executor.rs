//! A minimal executor, which polls a future and parks its thread until it is woken. It is the reference for the cost of
//! other executors.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
};

/// Runs one future at a time, on the thread that created the executor.
pub struct Parking {
    parker: Arc<Parker>,
    waker: Waker,
}

struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Parking {
    /// Creates an executor for the calling thread.
    pub fn new() -> Self {
        let parker =
            Arc::new(Parker { thread: std::thread::current(), woken: AtomicBool::new(false) });
        Self { waker: Waker::from(parker.clone()), parker }
    }

    /// Runs `future` to completion without heap allocation.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut task = Context::from_waker(&self.waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut task) {
                return output;
            }
            while !self.parker.woken.swap(false, Ordering::Acquire) {
                std::thread::park();
            }
        }
    }
}

impl Default for Parking {
    fn default() -> Self {
        Self::new()
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
