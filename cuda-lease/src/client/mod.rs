//! The client: a backend whose device is leased from a node.
//!
//! A [`LeaseBuilder`] connects to a node, requests a lease, and opens its device. [`backend`] turns submissions into
//! commands. They wait in the lanes of [`link`], which [`connection`] sends, on a thread of its own. Events come back to
//! [`link`], which passes progress on when the bytes of its copies are there ([`transfers`]).
//!
//! The folder uses `wire`, `session`, `authority` and `cuda_core`.

mod address;
mod backend;
mod builder;
mod connection;
mod control;
mod end;
mod lanes;
mod lease;
mod link;
mod provider;
mod renewal;
mod transfers;
mod transport;

pub use builder::LeaseBuilder;
pub use lease::Lease;
#[cfg(feature = "node")]
pub(crate) use transport::config as transport;
