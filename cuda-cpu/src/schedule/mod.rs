//! Runs the warps of a block, and the blocks of a cluster.
//!
//! `launch` calls [`Block::run`](block::Block::run). A block runs its warps in turns, and the
//! [`Runner`](runner::Runner) a warp's fragments: it calls one handler after the other until an instruction needs the
//! scheduler. Those are calls and `alloca` (`calls`, `builtin`), barriers (`barriers`) and collectives (`collectives`).
//! `barriers` and `stall` find threads that wait in vain. This folder uses `observe`, `exec`, `machine` and the layers
//! below.

pub(crate) mod barriers;
pub(crate) mod block;
pub(crate) mod buffer;
pub(crate) mod builtin;
pub(crate) mod calls;
pub(crate) mod cluster;
pub(crate) mod collectives;
pub(crate) mod printf;
pub(crate) mod runner;
pub(crate) mod stall;
pub(crate) mod warp;
