//! Running PTX: decoding (`decode`), handlers (`exec`), and what schedules them.
//!
//! A [`Program`] is shared, immutable code. A launch (`grid`) has workers, each with a context
//! (`ctx`) of its own; a worker runs blocks (`block`), a block its warps (`warp`), a warp its
//! fragments (`runner`).

mod address;
mod barrier;
mod block;
mod budget;
mod buffer;
mod builtin;
mod bulk;
mod calls;
mod code;
mod copies;
mod crew;
mod ctx;
mod decode;
mod exec;
mod fault;
mod grid;
mod launch;
mod op;
mod presets;
mod printf;
mod program;
mod runner;
mod stall;
mod team;
mod waiting;
mod warp;

pub use decode::{LoadError, LoadProblem};
pub use exec::barrier_word::MbarrierMisuse;
pub use fault::{Fault, FaultKind, FaultSpace, Waiting, WaitsFor};
pub use launch::{
    Invalid, Launch, LaunchDims, LaunchError, Limits, MAX_BLOCK_THREADS, MAX_SHARED_BYTES,
};
pub use program::{Entry, EntryParam, Program};
