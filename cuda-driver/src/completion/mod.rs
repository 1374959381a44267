//! Completion: reports the progress of streams to the client.
//!
//! Uses `streams`, `context` and `driver`. The backend calls [`Reporter::want`] when a caller waits. A want takes this
//! path:
//!
//! 1. [`reporter`] starts the completion thread, once, and asks the stream's `streams::reports` for a report.
//! 2. `streams::reports` decides whether a checkpoint is enqueued now, or whether the want shares a later one.
//! 3. [`checkpoint`] enqueues the checkpoint: it records an event, or enqueues a host function. Then it puts an entry
//!    into the inbox, which passes it to the completion thread and wakes the thread.
//! 4. [`watcher`] is the completion thread. When the stream has passed the checkpoint, the thread delivers a notice to
//!    the client, and asks `streams::reports` for the next checkpoint.
//!
//! [`Completion`] is the option that chooses between the two kinds of checkpoint. [`waiting`] decides how long a thread
//! spins and sleeps while it waits. [`block_on_report`] blocks the caller's own thread until a stream has passed a
//! number.

mod checkpoint;
mod reporter;
mod waiting;
mod watcher;

pub(crate) use reporter::Reporter;
pub use waiting::Completion;
pub(crate) use waiting::block_on_report;
#[cfg(all(test, loom))]
pub(crate) use {
    checkpoint::{Checkpoint, Entry, ReportInbox, WatchedDevice, enqueue_checkpoint, pass},
    watcher::watch,
};
