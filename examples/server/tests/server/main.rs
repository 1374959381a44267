//! The server over HTTP: answers, limits, connections, shutdown, leases and the program.

mod answers;
mod client;
mod connections;
mod lease;
mod program;
mod requests;
mod server;
mod shutdown;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
