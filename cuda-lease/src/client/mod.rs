//! The client: a backend whose device is leased from a node.
//!
//! A [`LeaseBuilder`] connects to a node, requests a lease, and opens its device. [`backend`] turns submissions into
//! commands. They wait in the lanes of [`link`], which [`connection`] sends, on a thread of its own. Events come back to
//! [`link`], which passes progress on when the bytes of its copies are there ([`transfers`]).
//!
//! Requests without a session are those of a [`NodeClient`], and stateless submits ([`submit`]; [`burst`] for many
//! inputs).
//!
//! The folder uses `wire`, `session`, `authority`, `transport` and `cuda_core`.

mod address;
mod backend;
mod blob;
mod builder;
mod burst;
mod connection;
mod control;
mod dial;
mod driver;
mod end;
mod grant;
mod graph;
mod lanes;
mod lease;
mod link;
mod node_client;
mod provider;
mod random;
mod renewal;
mod replies;
mod spans;
mod submit;
mod tls_refusal;
mod transfers;

pub use builder::LeaseBuilder;
pub use burst::burst;
pub use lease::Lease;
pub use node_client::{DetachedLease, NodeClient};
pub use submit::{Job, Submit, Submitted};
