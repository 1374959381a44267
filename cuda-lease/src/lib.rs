//! Leases a GPU of another machine, and runs the same operations on it.

pub mod session;
pub mod wire;
