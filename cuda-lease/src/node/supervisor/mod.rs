//! The supervisor: accepts connections, keeps leases, and passes frames between clients and workers.
//!
//! It never uses a device. A connection has one control stream ([`control`]), two lanes per session ([`lane`]), and
//! streams for blobs ([`blobs`]) and stateless submits ([`submit`]). The frames of a lane go to the worker of the lease as
//! they are. The submits of a lease wait in a queue ([`jobs`]). The folder uses `wire`, `session`, `authority` and the
//! sockets of `worker`.

mod audit;
mod blobs;
mod connection;
mod control;
mod jobs;
mod lane;
mod leases;
mod refusal;
mod server;
mod session;
mod streams;
mod submit;
mod turns;
mod workers;

pub use server::{DeviceOptions, Node, NodeOptions};
