//! The status endpoints of a node, over HTTP: metrics, JSON and a page.
//!
//! | path | content |
//! |---|---|
//! | `/metrics` | OpenMetrics text |
//! | `/status.json` | the [`Snapshot`](super::metrics::Snapshot) as JSON |
//! | `/` | a page that shows the snapshot and reads it again each second |
//!
//! The endpoints only read, and show no tokens, keys or addresses of clients. They do show the names of tenants, so
//! `cuda-node` serves them only where its operator asks for it. The folder uses `metrics` and nothing else of the node.
//! [`serve`] answers each request from a snapshot that the supervisor makes.

mod connections;
mod server;

pub use server::serve;
