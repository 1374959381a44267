//! The client: a backend whose device is leased from a node.
//!
//! A [`LeaseBuilder`] connects to a node, requests a lease, and opens its device. [`backend`] turns submissions into
//! commands. They wait in the lanes of [`link`]. The thread of the [`connection`] sends them on its [`streams`]. Events
//! come back to [`link`], which passes progress on when the bytes of its copies are there (`link/transfers.rs`).
//!
//! Requests without a session are those of a [`NodeClient`], and stateless submits ([`submit`]; [`burst()`] for many
//! inputs).
//!
//! Layers, lowest first: [`end`] (the ends of connections as errors), [`certificate`], [`link`], [`streams`],
//! [`submit`], [`connection`], [`backend`], and the types that users hold.
//!
//! The folder uses `wire`, `session`, `authority`, `transport` and `cuda_core`.

mod address;
mod backend;
mod builder;
mod burst;
mod certificate;
mod connection;
mod end;
mod lease;
mod link;
mod node_client;
mod random;
mod spans;
mod streams;
mod submit;

pub use builder::LeaseBuilder;
pub use burst::burst;
pub use lease::Lease;
pub use node_client::{DetachedLease, NodeClient};
pub use submit::{Job, Submit, Submitted};

/// Returns the provider of a lease, whose device is opened by the usual ways of a device.
///
/// # Errors
/// The settings contradict each other, or the node has no address.
#[cfg(feature = "server")]
pub(crate) fn lease_provider(
    lease: &LeaseBuilder,
) -> cuda_core::Result<impl cuda_core::Provider + use<>> {
    lease.terms().map(backend::LeaseProvider::new)
}
