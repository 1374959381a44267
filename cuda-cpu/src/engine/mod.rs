//! Running PTX: decoding (`decode`), handlers (`exec`), and what schedules them.
//!
//! A [`Program`] is shared, immutable code. A launch (`grid`) has workers, each with a context
//! (`ctx`) of its own; a worker runs blocks (`block`), a block its warps (`warp`), a warp its
//! fragments (`runner`). What is checked or counted beyond that is `observe`'s.

mod address;
mod barrier;
mod barriers;
mod block;
mod budget;
mod buffer;
mod builtin;
mod bulk;
mod calls;
mod clock;
mod code;
mod collectives;
mod copies;
mod crew;
mod ctx;
mod decode;
mod divergence;
mod ending;
mod exec;
mod fault;
mod grid;
mod launch;
mod observe;
mod op;
mod presets;
mod printf;
mod program;
mod runner;
mod sources;
mod spares;
mod stack;
mod stall;
mod team;
mod variables;
mod waiting;
mod warp;

pub use decode::{LoadError, LoadProblem};
pub use exec::barrier_word::MbarrierMisuse;
pub use fault::{Fault, FaultKind, FaultSpace, Racing, Waiting, WaitsFor};
pub use launch::{
    Invalid, Launch, LaunchDims, LaunchError, Limits, MAX_BLOCK_THREADS, MAX_SHARED_BYTES,
};
pub use observe::{Checks, KernelProfile, KindCount, Profile, Schedule};
pub use program::{Entry, EntryParam, Program};
pub use variables::NearVariable;
