//! Graphs over a lease.

mod hostile;
mod launches;
mod loops;
mod recording;
mod session;
