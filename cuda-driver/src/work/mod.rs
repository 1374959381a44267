//! Work: turns each [`Work`] into one driver call, or into a node of a graph.
//!
//! Uses `objects` for addresses and functions, and `driver`. The backend calls [`enqueue`] after it found the stream
//! and ordered it after others. Failures of these calls refuse the submission.

mod attributes;
mod copy;
mod enqueue;
mod graph;
mod launch;
mod node;
mod peers;
mod place;
mod timestamp;

pub(crate) use attributes::occupancy;
pub(crate) use enqueue::enqueue;
pub(crate) use node::{checked_node, node};
pub(crate) use peers::reach;
pub(crate) use place::{Names, Place};
