//! The CPU device, which runs PTX warp by warp and checks the bounds, the alignment and the lifetime of every access.
//!
//! [`CpuProvider`] opens the device. [`Checks`] adds further checks: races on shared memory, reads of uninitialized
//! memory, writes through arguments that a launch only reads. [`Memory`] is the memory of a device, and [`Program`] is
//! a decoded PTX module.
//!
//! Without optimization the device runs kernels up to a hundred times slower. A debug build of a program that uses it
//! needs these lines in the program's `Cargo.toml`:
//!
//! ```toml
//! [profile.dev.package.cuda-cpu]
//! opt-level = 2
//! [profile.dev.package.cuda-ptx]
//! opt-level = 2
//! ```
//!
//! # Layers, lowest first
//!
//! | folder | content |
//! |---|---|
//! | `memory` | checked memory of a device |
//! | `fault` | errors of kernels, with their places |
//! | `lanes` | masks of lanes, and functions over all lanes of a warp |
//! | `isa` | operands and effects of decoded instructions |
//! | `machine` | decoded code, and the state that it runs on |
//! | `exec` | handlers, which execute instructions |
//! | `decode` | translates parsed PTX to code |
//! | `observe` | checks, limits, profiles and shuffled orders |
//! | `schedule` | runs the warps of a block |
//! | `launch` | programs, and launches of their kernels |
//! | `device` | the backend for `cuda-core` |
//!
//! `random` has the random numbers of shuffled orders and random delays.
#![deny(missing_docs)]

mod decode;
mod device;
mod exec;
mod fault;
mod isa;
mod lanes;
mod launch;
mod machine;
mod memory;
mod observe;
mod random;
mod schedule;

pub use decode::{LoadError, LoadProblem};
pub use device::{CpuBackend, CpuOptions, CpuProvider, Timing};
pub use fault::{
    Fault, FaultKind, FaultSpace, MbarrierMisuse, NearVariable, Racing, Waiting, WaitsFor,
};
pub use isa::{MAX_BLOCK_THREADS, MAX_CLUSTER_BLOCKS, MAX_SHARED_BYTES};
pub use launch::{
    Entry, EntryParam, Invalid, Launch, LaunchDims, LaunchError, Limits, Program, Resources,
};
pub use memory::{AccessError, Contents, FreeError, Memory, Nearest, OutOfMemory, Usage};
pub use observe::{Checks, KernelProfile, KindCount, Operand, Profile, Schedule};
