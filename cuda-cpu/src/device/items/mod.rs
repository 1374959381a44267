//! Work of streams: its resolution, and its run.
//!
//! A submission is resolved when it is made: names become addresses, and bounds and shapes are checked ([`resolve`]). A
//! [`work::QueueItem`] runs the resolved [`work::Work`] on the state of the device. `queues` runs the items in order.
//! [`dead_work`] finds the items whose results nothing can see.

pub(crate) mod dead_work;
pub(crate) mod graph;
pub(crate) mod resolve;
pub(crate) mod work;
