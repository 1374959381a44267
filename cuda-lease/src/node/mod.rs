//! The node: serves leases of the devices of this machine.
//!
//! Lowest first: [`metrics`] counts and measures, and [`status`] serves the figures over HTTP. `worker` carries out the
//! commands of one session on a device. `supervisor` accepts connections, keeps the leases, and passes frames between clients
//! and workers. It never uses a device itself. [`process`] starts, kills and reaps worker processes. [`gpu`] lists the GPUs
//! and checks that the memory of an ended worker has come back.

pub mod gpu;
pub mod leases;
pub mod metrics;
pub mod process;
pub mod quotas;
pub mod status;
pub mod supervisor;
pub mod worker;
