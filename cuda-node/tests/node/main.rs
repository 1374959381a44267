//! Nodes with worker processes: the life and the end of leases, and clients that break the rules.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod abuse;
mod accounts;
mod attacks;
mod cancellation;
mod chaos;
mod cycles;
mod detached;
mod ends;
mod failures;
mod false_nodes;
mod forged_frames;
mod graphs;
mod harness;
mod hostile;
mod identity;
mod initials;
mod kills;
mod life;
mod neighbor;
mod network;
mod out_of_memory;
mod raw;
mod requests;
mod restart;
mod status;
mod submits;
mod tenants;
