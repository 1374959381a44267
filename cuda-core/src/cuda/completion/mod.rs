//! Completion: reports the progress of streams to the client.
//!
//! Uses `streams` and `context`. The backend calls [`Reporter::want`] when a caller waits. That has the stream write its
//! word, and enters it at the completion thread ([`watcher`]), which watches the words and delivers notices.
//! [`wait_budget`] decides how long the thread spins and sleeps.

mod block;
mod reporter;
mod wait_budget;
pub(in crate::cuda) mod watcher;

pub(crate) use block::block_on_word;
pub use reporter::Completion;
pub(crate) use reporter::Reporter;
#[cfg(all(test, loom))]
pub(crate) use {reporter::host_call, wait_budget::Wakeup};
