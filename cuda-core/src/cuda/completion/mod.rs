//! Completion: reports the progress of streams to the client.
//!
//! Uses `streams`, `context` and `driver`. The backend calls [`Reporter::want`] when a caller waits. A want takes this
//! path:
//!
//! 1. [`reporter`] starts the completion thread, once, and asks the stream's `streams::reports` for a report.
//! 2. `streams::reports` decides whether the stream writes its word now, or whether the want shares a later write.
//! 3. [`device`] enqueues the write of the word: a memory operation, or a [`host_function`]. Then it puts an entry into
//!    the inbox.
//! 4. [`inbox`] passes the entry to the completion thread, and wakes the thread.
//! 5. [`watcher`] is the completion thread. When the word shows the number of the entry, it reads the status of the
//!    stream, delivers a notice to the client, and asks `streams::reports` for the next write.
//!
//! [`mode`] is the option that chooses between the two kinds of write. [`wait_budget`] decides how long a thread spins
//! and sleeps while it waits. [`block_on_word`] blocks the caller's own thread until a word shows a number.

mod asked;
mod block;
mod device;
mod host_function;
mod inbox;
mod mode;
mod reporter;
mod wait_budget;
mod watcher;

pub(crate) use block::block_on_word;
pub use mode::Completion;
pub(crate) use reporter::Reporter;
#[cfg(all(test, loom))]
pub(crate) use {
    device::{WatchedDevice, enqueue_write},
    host_function::host_call,
    inbox::ReportInbox,
    wait_budget::Wakeup,
    watcher::watch,
};
