//! Ordering of submissions, progress of streams, and retention of resources.
//!
//! This folder is independent of devices. It uses `protocol` (tickets, errors) and `sync`. loom checks its files alone.
//! `handle` calls it for every submission, and `runtime` for every notice: `accesses` and `history` name the tickets to
//! wait for, `progress` keeps the waiters of a stream, `retention` keeps resources alive, `inferred_completion` carries
//! completion over cross-stream waits, and `poison` records which memory has lost its contents. `plan` orders the nodes
//! of a recording with the same histories, and `names` holds the names of the operations that they belong to.

pub(crate) mod accesses;
pub(crate) mod history;
pub(crate) mod inferred_completion;
pub(crate) mod names;
pub(crate) mod plan;
pub(crate) mod poison;
mod position;
pub(crate) mod progress;
pub(crate) mod retention;
pub(crate) mod timeline;

pub use poison::{Poison, uses_of};
pub use position::MAX_READERS;
pub use progress::Waiter;
pub use retention::{MAX_RETAINED, MAX_RETAINED_BYTES, Retain};
