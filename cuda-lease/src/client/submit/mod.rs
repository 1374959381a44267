//! Stateless submits: one kernel, its input and its output in one round trip.
//!
//! A [`Job`] describes the kernel. A [`Submit`] is a job that has a lease, and runs. [`exchange`] sends the frames on a
//! stream of the connection that [`channel`] keeps. The folder uses the connection of the lease, and no session.

mod call;
mod channel;
mod exchange;
mod job;

pub use call::{Submit, Submitted};
pub(super) use channel::{Channel, Current};
pub use job::Job;
