//! Kernels: their arguments, launches, and the `kernels!` declaration.

// This folder uses `op` and `context`. Programs call it directly or through `kernels!`. A typical
// call goes from `launch` to `Function::launch` in `handle/kernel/launch.rs` of `cuda-core`.

mod argument;
mod autotuner;
pub(crate) mod buffer_form;
mod cache;
pub mod checks;
mod cuda_launch;
#[cfg(feature = "macros")]
mod declare;
mod given_back;
mod in_sequence;
mod launch;
mod load;
mod param;
mod prepared;
mod tuning_file;
mod typed_args;

pub use argument::{Buffers, ByValue, KernelArg, KernelArgs, Returned};
pub use autotuner::Autotuner;
pub use buffer_form::KernelBuffer;
pub use cache::{LoadCached, ModuleCache};
#[doc(no_inline)]
pub use cuda_core::{
    Function, FunctionAttributes, LaunchConfig, Module, Occupancy, protocol::LaunchAttributes,
};
pub use cuda_launch::{launch_named, launch_on, named, with_cluster};
#[cfg(feature = "macros")]
pub use declare::kernels;
pub use given_back::BufferTuple;
pub use in_sequence::{Arg, InSequence, LazyArgs, ready_args};
pub use launch::{LaunchOp, launch};
pub use load::{LoadPtx, load_ptx};
pub use param::{KernelParam, push_param, put_field};
pub use prepared::{Prepared, launch_given, launch_unless_empty};
pub use typed_args::{
    Aligned, AlignedAt, Group, KernelInput, KernelOutput, Reads, Writes, aligned, aligned_at,
    writes,
};
