//! Ordering of submissions, progress of streams, and retention of resources.
//!
//! This folder is independent of devices. It uses `protocol` (tickets, errors) and `sync`. loom checks its files alone.
//! `handle` calls it for every submission, and `runtime` for every notice: `history` names the tickets to wait for and
//! records which memory has lost its contents, `progress` keeps the waiters of a stream and carries completion over
//! cross-stream waits, and `retention` keeps resources alive. `plan` orders the nodes of a recording with the same
//! histories, and `names` holds the names of the operations that they belong to.

pub(crate) mod history;
pub(crate) mod names;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod retention;
pub(crate) mod timeline;

pub use history::{MAX_READERS, Poison, uses_of};
pub use progress::Waiter;
pub use retention::{MAX_RETAINED, MAX_RETAINED_BYTES, Retain};
