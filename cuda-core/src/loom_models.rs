//! loom models: loom runs the code itself in every order in which its threads can meet (CONTRIBUTING.md has the
//! command).
//!
//! A model has few threads and small [limits](crate::sync::limit). It runs the real submissions, waiters and notices on
//! a [backend] that only records the calls. Larger models bound the number of preemptions; `check` takes that bound.

mod backend;
mod memory_charge;
mod notices;
mod recordings;
mod retention;
mod sharded_arc;
mod splits;
mod tickets;
mod waiters;

use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use ::loom::sync::Notify;

use crate::sync::check_model as check;

/// A task's thread, to be woken.
struct Task(Notify);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// Polls until it is ready, and in between sleeps until it is woken.
pub(crate) fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let task = Arc::new(Task(Notify::new()));
    let waker = Waker::from(task.clone());
    loop {
        match poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => task.0.wait(),
        }
    }
}
