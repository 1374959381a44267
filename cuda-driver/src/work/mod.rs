//! Work: turns each [`Work`] into one driver call, or into a node of a graph.
//!
//! Uses `objects` for addresses and functions, and `driver`. The backend calls [`enqueue`] after it found the stream
//! and ordered it after others. Failures of these calls refuse the submission.

mod attributes;
mod copy;
mod dispatch;
mod launch;
mod peers;
mod place;

pub(crate) use attributes::occupancy;
pub(crate) use dispatch::{checked_node, enqueue, node};
pub(crate) use peers::{BackendId, Target, Transfers, reach};
pub(crate) use place::{Names, Place};
