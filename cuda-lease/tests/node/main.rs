//! Nodes with worker processes: the life and the end of leases, and clients that break the rules.

mod cycles;
mod ends;
mod harness;
mod hostile;
mod life;
mod network;
mod raw;
