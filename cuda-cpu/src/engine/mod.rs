//! Runs PTX kernels on the CPU: decodes modules (`decode`), executes instructions (`exec`) and schedules threads.
//!
//! The engine uses `memory` and the parser in `cuda-ptx`. The `device` folder calls it. A typical use is
//! [`Program::load`], which decodes a module into immutable code, and then [`Program::launch`]. A launch (`grid`) has
//! workers, each with its own context (`ctx`). A worker runs blocks (`block`), a block its warps (`warp`), and a warp
//! its fragments (`runner`). `observe` contains the optional checks and counters.

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
mod cluster;
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
    Invalid, Launch, LaunchDims, LaunchError, Limits, MAX_BLOCK_THREADS, MAX_CLUSTER_BLOCKS,
    MAX_SHARED_BYTES,
};
pub use observe::{Checks, KernelProfile, KindCount, Profile, Schedule};
pub(crate) use program::count_in;
pub use program::{Entry, EntryParam, Program, Resources};
pub use variables::NearVariable;
