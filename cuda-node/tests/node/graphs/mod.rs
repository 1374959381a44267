//! Graphs over a lease.

mod features;
mod hostile;
mod launches;
mod loops;
mod recording;
mod session;
