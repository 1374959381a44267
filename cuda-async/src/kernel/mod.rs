//! Kernels: their arguments, launches, and the `kernels!` declaration.

// This folder uses `op` and `context`. Programs call it directly or through `kernels!`. A typical
// call goes from `launch` to `Function::launch` in `handle/kernel/launch.rs` of `cuda-core`.

mod argument;
mod autotuner;
pub(crate) mod buffer_form;
mod cache;
pub mod checks;
mod code;
#[cfg(feature = "nvrtc")]
mod compile;
mod cuda_launch;
#[cfg(feature = "nvrtc")]
mod cuda_source;
#[cfg(feature = "macros")]
mod declare;
#[cfg(feature = "nvrtc")]
pub mod declared;
mod given_back;
mod image;
mod launch;
mod load;
mod param;
mod prepared;
mod slot;
mod store;
mod tuning_file;
mod typed_args;

pub use argument::{Buffers, ByValue, KernelArg, KernelArgs, Returned};
pub use autotuner::Autotuner;
pub use buffer_form::KernelBuffer;
pub use cache::{LoadCached, ModuleCache};
#[cfg(feature = "nvrtc")]
pub use compile::{Compile, compile, compile_blocking};
pub use cuda_core::{
    Function, FunctionAttributes, LaunchConfig, Module, Occupancy, protocol::LaunchAttributes,
};
pub use cuda_launch::{launch_named, launch_on, named, with_cluster};
#[doc(no_inline)]
#[cfg(feature = "nvrtc")]
pub use cuda_nvrtc::{self as nvrtc, Options, Source};
#[cfg(feature = "nvrtc")]
pub use cuda_source::CudaSource;
#[cfg(feature = "macros")]
pub use declare::kernels;
pub use given_back::BufferTuple;
pub use image::Image;
pub use launch::{LaunchOp, launch};
pub use load::{LoadPtx, load_ptx};
pub use param::{KernelParam, push_param, put_field};
pub use prepared::{Prepared, launch_given, launch_unless_empty};
pub use store::{LoadStored, ModuleStore};
pub use typed_args::{
    Aligned, AlignedAt, Group, KernelInput, KernelOutput, Reads, Writes, aligned, aligned_at,
    writes,
};
