//! The supervisor: accepts connections, keeps leases, and passes frames between clients and workers.
//!
//! It never uses a device. A connection has one request stream (`connection`), two lanes per session (`sessions`), and
//! streams for blobs (`blobs`, with the memory of `uploads`) and stateless submits (`submit`). The frames of a lane go
//! to the worker of the lease as they are. The submits of a lease wait in a queue (`jobs`). A reload reads certificates
//! and quotas again, and a connection ends with the certificate of its client (`reload`). After the end of a lease,
//! connections of its tenant with large windows may be too many: they end (`wide_connections`). Packets with many small
//! parts are dropped before `quinn` sorts them (`packet_parts`). The folder uses `wire`, `session`, `authority`,
//! `transport` and all other folders of the node. Of `worker` it uses the messages, and the entry points for workers
//! that are threads of this process.

mod audit;
mod blobs;
mod connection;
mod connection_memory;
mod counted;
mod handshakes;
mod jit_cache;
mod jobs;
mod leases;
mod memory_budget;
mod operator;
mod packet_parts;
mod rate;
mod reload;
mod server;
mod sessions;
mod spans;
mod state_folder;
mod streams;
mod submit;
mod tenants;
mod uploads;
mod wide_connections;
mod worker_files;
mod workers;

pub use jit_cache::JitCache;
pub use operator::{OperatorCommand, OperatorReply};
pub use server::{DeviceOptions, Node, NodeOptions};
