//! Work of streams: its resolution, and its run.
//!
//! A submission is resolved when it is made: names become addresses, and bounds and shapes are checked ([`resolve`]). A
//! [`job::Job`] runs the resolved [`work::Work`] on the state of the device. `queues` runs the jobs in order.

pub(crate) mod graph;
pub(crate) mod job;
pub(crate) mod resolve;
pub(crate) mod work;
