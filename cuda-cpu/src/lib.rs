//! The CPU device, which runs PTX warp by warp and checks every access.
//!
//! [`CpuProvider`] opens the device. [`Memory`] is the memory of a device, and [`Program`] is a decoded PTX module.
//!
//! Layers, lowest first: `memory` (checked device memory), `engine` (decodes PTX and runs kernels), `device` (the backend).
#![deny(missing_docs)]

mod device;
mod engine;
mod memory;
mod random;

pub use device::{CpuBackend, CpuOptions, CpuProvider, Timing};
pub use engine::{
    Checks, Entry, EntryParam, Fault, FaultKind, FaultSpace, Invalid, KernelProfile, KindCount,
    Launch, LaunchDims, LaunchError, Limits, LoadError, LoadProblem, MAX_BLOCK_THREADS,
    MAX_CLUSTER_BLOCKS, MAX_SHARED_BYTES, MbarrierMisuse, NearVariable, Profile, Program, Racing,
    Resources, Schedule, Waiting, WaitsFor,
};
pub use memory::{AccessError, Contents, FreeError, Memory, Nearest, OutOfMemory, Usage};
