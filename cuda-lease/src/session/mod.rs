//! Sessions: numbering, acknowledgement and resumption of frames.
//!
//! A session has two [lanes](crate::wire::Lane), each with an ordered sequence of frames in each direction. An
//! [`Outgoing`] sequence keeps its frames until the other side has acknowledged them. After a lost connection it sends
//! those that the other side has not received. An [`Incoming`] sequence checks the numbers. So each frame arrives exactly
//! once, whatever happens to connections.
//!
//! Everything here is pure: no clock, no network, no device. The folder uses `wire` and no other folder of this crate.
//! `client` and the crate `cuda-node` drive it.

#![forbid(unsafe_code)]

mod incoming;
mod outgoing;

pub use incoming::{Incoming, SessionError};
pub use outgoing::Outgoing;
