//! The worker: carries out the commands of one session, and the stateless submits of the same lease, on one device.
//!
//! A worker has three sockets to its supervisor. *Commands* carries commands in and events out. *Bulk* carries bulk
//! data in both directions. *Jobs* carries stateless submits in and their replies out (`jobs`). The worker uses `wire`,
//! `cuda_core` and the sockets of `process`, and no network.
//!
//! The worker keeps the state of the session's frames: it numbers its events and keeps them until the client has
//! acknowledged them (`outbox`), and it checks and acknowledges those of the client (`inbox`). So a session outlives the
//! connections of the client, and the supervisor: `sockets` has those of the current one.
//!
//! `graphs` keeps the graphs of the session. A command goes through `engine`, which holds it until its bytes and its
//! predecessors are there and then submits it to the backend. `reports` turns notices of the backend into events.
//!
//! # Rules of the unsafe code
//! A client is not trusted to keep the rules of `Backend`: it may order its own work wrongly, and its kernels may write
//! anywhere in the memory of its worker's device context. All of that memory is its own: a worker serves one lease, and
//! is never used again. The worker itself keeps the rules that protect its host memory: blocks come from its `staging`,
//! and a block is reused only when the backend has reported its submission complete.

mod engine;
mod graphs;
mod inbox;
pub(crate) mod jobs;
mod messages;
mod modules;
mod outbox;
mod queries;
mod quota;
mod reports;
mod run;
mod sockets;
mod staging;
mod telemetry;

pub use messages::{
    Assign, Drain, Drained, Measured, NeedCode, PROTOCOL, Ready, Resume, Resumed, SetTurn,
    WantTurn, WorkerBlob,
};
pub(crate) use run::host_memory;
pub use run::run;
