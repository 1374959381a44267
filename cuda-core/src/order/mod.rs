//! Ordering of submissions, progress of streams, and retention of resources.
//!
//! This folder is independent of devices. It uses `protocol` (tickets, errors) and `sync`. loom checks its files alone.
//! `handle` calls it for every submission, and `runtime` for every notice: `history` names the tickets to wait for and
//! records which memory has lost its contents, `timeline` has the numbers of a stream, keeps its waiters, carries
//! completion over cross-stream waits, and keeps resources alive. `plan` orders the nodes of a recording with the same
//! histories.

pub(crate) mod history;
pub(crate) mod plan;
pub(crate) mod timeline;

pub use history::{MAX_READERS, Poison, uses_of};
pub use timeline::{MAX_RETAINED, MAX_RETAINED_BYTES, Retain, Waiter};
