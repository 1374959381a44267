//! The CPU device: runs PTX warp by warp, with every access checked.
//!
//! [`CpuProvider`] opens it. Below that, [`Memory`] is the device's memory; [`Program`] is a PTX module decoded for running. The code that
//! decodes is `engine/decode`, the handlers that run are `engine/exec`, and what schedules warps,
//! blocks and grids lies beside them.
#![deny(missing_docs)]

mod device;
mod engine;
mod memory;
mod random;

pub use device::{CpuBackend, CpuOptions, CpuProvider, Timing};
pub use engine::{
    Checks, Entry, EntryParam, Fault, FaultKind, FaultSpace, Invalid, KernelProfile, KindCount,
    Launch, LaunchDims, LaunchError, Limits, LoadError, LoadProblem, MAX_BLOCK_THREADS,
    MAX_SHARED_BYTES, MbarrierMisuse, NearVariable, Profile, Program, Racing, Schedule, Waiting,
    WaitsFor,
};
pub use memory::{AccessError, Contents, FreeError, Memory, Nearest, OutOfMemory, Usage};
