//! Import and export of DLPack tensors on the CPU device, and on the first GPU if there is one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod deleters;
mod gpu;
mod producer;
mod refusals;
mod round_trips;
