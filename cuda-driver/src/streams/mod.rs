//! Streams: the driver's stream with its numbers and its events, and the table that finds it by its id.
//!
//! Uses `windows`, `context` and `driver`. The backend finds a [`DriverStream`] in the [`StreamTable`] for every
//! submission, orders it after other streams with [`DriverStream::wait_for`], and stores the number of the submission.
//! `completion` reads [`DriverStream::completed`] and [`DriverStream::is_idle`], and decides with [`Reports`] when to
//! enqueue a checkpoint.

mod checkpoint_events;
mod event;
mod foreign_call;
mod foreign_state;
mod passed;
mod query;
mod reports;
mod settle;
mod stream;
mod table;

pub(crate) use checkpoint_events::CheckpointEvents;
pub(crate) use event::new_event;
pub(crate) use passed::Passed;
use reports::Reports;
pub(crate) use stream::DriverStream;
pub(crate) use table::StreamTable;

use cuda_core::protocol::{Error, Misuse};

/// The error for a new id that is in use.
#[cold]
pub(crate) fn taken(object: &'static str, id: u64) -> Error {
    Misuse::IdInUse { object: object.into(), id }.into()
}
