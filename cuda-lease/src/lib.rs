//! Leases a GPU of another machine, and runs the same operations on it.

pub mod authority;
mod client;
#[cfg(feature = "node")]
pub mod node;
pub mod session;
pub mod wire;

pub use client::{Lease, LeaseBuilder};
pub use wire::Exclusivity;
