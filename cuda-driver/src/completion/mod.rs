//! Completion: reports the progress of streams to the client.
//!
//! Uses `streams`, `context` and `driver`. The backend calls [`Reporter::want`] when a caller waits. A want takes this
//! path:
//!
//! 1. [`reporter`] starts the completion thread, once, and asks the stream's `streams::reports` for a report.
//! 2. `streams::reports` decides whether a checkpoint is enqueued now, or whether the want shares a later one.
//! 3. [`device`] enqueues the checkpoint: it records an event, or enqueues a host function. Then it puts an entry into
//!    the inbox.
//! 4. [`inbox`] passes the entry to the completion thread, and wakes the thread.
//! 5. [`watcher`] is the completion thread. When the stream has passed the checkpoint, the thread delivers a notice to
//!    the client, and asks `streams::reports` for the next checkpoint.
//!
//! [`mode`] is the option that chooses between the two kinds of checkpoint. [`wait_budget`] decides how long a thread
//! spins and sleeps while it waits. [`block_on_report`] blocks the caller's own thread until a stream has passed a
//! number.

mod block;
mod device;
mod inbox;
mod mode;
mod reporter;
mod wait_budget;
mod watcher;

pub(crate) use block::block_on_report;
pub use mode::Completion;
pub(crate) use reporter::Reporter;
#[cfg(all(test, loom))]
pub(crate) use {
    device::{WatchedDevice, enqueue_checkpoint, pass},
    inbox::{Checkpoint, Entry, ReportInbox},
    wait_budget::Wakeup,
    watcher::watch,
};
