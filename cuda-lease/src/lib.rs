//! Leases a GPU of another machine, and runs the same operations on it.

#[cfg(feature = "node")]
pub mod node;
pub mod session;
pub mod wire;
