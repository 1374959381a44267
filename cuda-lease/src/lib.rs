//! Leases a GPU of another machine, and runs the same operations on it.

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
