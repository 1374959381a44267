//! Streams as queues of items, and the threads that run them.
//!
//! A [`queue::Queue`] runs its items in order. It releases its thread when the next item has to wait for another queue,
//! for memory, or for a delay. A few threads ([`pumps`]) run the queues, and sleep while there is nothing to run. They
//! also deliver notices, separately from the queues, so a waker that blocks delays no stream. If memory becomes
//! available only after submitted frees, the queue waits.
//!
//! This folder uses `items`. `backend` calls [`queue::Queue::push`].

pub(crate) mod pumps;
pub(crate) mod queue;
mod timing;

pub use timing::Timing;
