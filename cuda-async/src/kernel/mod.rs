//! Kernels: their arguments, launches, and the `kernels!` declaration.

// This folder uses `op` and `context`. Programs call it directly or through `kernels!`. A typical
// call goes from `launch` to `Function::launch` in `handle/kernel/launch.rs` of `cuda-core`.

pub(crate) mod arguments;
mod autotuner;
pub mod checks;
mod cuda_launch;
#[cfg(feature = "macros")]
mod declare;
#[cfg(feature = "nvrtc")]
pub mod declared;
mod launch;
mod modules;
mod prepared;
mod tuning_file;

pub use arguments::argument::{Buffers, ByValue, KernelArg, KernelArgs, Returned};
pub use arguments::buffer_form::KernelBuffer;
pub use arguments::given_back::BufferTuple;
pub use arguments::param::{KernelParam, push_param, put_field};
pub use arguments::typed_args::{
    Aligned, AlignedAt, Group, KernelInput, KernelOutput, Reads, aligned, aligned_at, writes,
};
pub use autotuner::Autotuner;
pub use cuda_core::{
    Function, FunctionAttributes, LaunchConfig, Module, Occupancy, protocol::LaunchAttributes,
};
pub use cuda_launch::{launch_named, launch_on, named, with_cluster};
#[doc(no_inline)]
#[cfg(feature = "nvrtc")]
pub use cuda_nvrtc::{self as nvrtc, Options, Source};
#[cfg(feature = "macros")]
pub use declare::kernels;
pub use launch::{LaunchOp, launch};
pub use modules::cache::{LoadCached, ModuleCache};
#[cfg(feature = "nvrtc")]
pub use modules::compile::{Compile, compile, compile_blocking};
#[cfg(feature = "nvrtc")]
pub use modules::cuda_source::CudaSource;
pub use modules::image::Image;
pub use modules::load::{LoadPtx, load_ptx};
pub use modules::store::{LoadStored, ModuleStore};
pub use prepared::{Prepared, launch_given, launch_unless_empty};
