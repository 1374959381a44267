//! Streams: the driver's stream with its numbers and its events, and the table that finds it by its id.
//!
//! Uses `windows`, `context` and `driver`. The backend finds a [`DriverStream`] in the [`StreamTable`] for every
//! submission, orders it after other streams with [`DriverStream::wait_for`], and stores the number of the submission.
//! `completion` reads [`DriverStream::completed`] and [`DriverStream::is_idle`], and decides with [`reports`] when to
//! enqueue a checkpoint.

mod reports;
mod stream;
mod table;

pub(crate) use reports::CheckpointEvents;
pub(crate) use stream::{DriverStream, Passed};
pub(crate) use table::{StreamTable, taken};
