//! Stateless submits: one kernel, its input and its output in one round trip.
//!
//! A [`Job`] describes the kernel. A [`Submit`] runs it on a lease, and [`burst`] runs it over many inputs on several
//! leases. [`exchange`] sends the frames on a stream of the connection that [`channel`] keeps. The folder uses the
//! connection of the lease, and no session.

mod burst;
mod call;
mod channel;
mod exchange;
mod job;

pub use burst::burst;
pub use call::{Submit, Submitted};
pub(super) use channel::Channel;
pub(super) use exchange::Target;
pub use job::Job;
