//! Leases a GPU of another machine, and runs the same operations on it.
//!
//! [`LeaseBuilder`] requests a lease and opens its device. [`NodeClient`] sends requests without a session: the
//! inventory, leases that outlive the connection, stateless submits. The module `node` (feature `node`) serves leases.
//!
//! Lowest first, the modules are [`wire`] (frames and messages), [`session`] (numbering and resumption), [`authority`]
//! (TLS and tokens), `client` and `node`.

pub mod authority;
mod client;
#[cfg(feature = "node")]
pub mod node;
pub mod session;
mod transport;
pub mod wire;

pub use client::{DetachedLease, Job, Lease, LeaseBuilder, NodeClient, Submit, Submitted, burst};
pub use cuda_core::protocol::Status;
pub use wire::{DeviceEntry, Exclusivity, LeaseEntry, TraceContext};
