//! Kernels: arguments, launches, modules, and the `kernels!` declaration.
//!
//! | to | use |
//! |---|---|
//! | declare the kernels of a PTX or CUDA file as Rust functions | [`kernels!`](crate::kernels) |
//! | launch a kernel that was loaded by its name | [`launch`], [`cuda_launch!`](crate::cuda_launch) |
//! | compile CUDA C++ at run time | [`compile()`], [`compile_blocking`] |
//! | load PTX | [`load_ptx`], or [`Device::load_ptx_blocking`](crate::Device::load_ptx_blocking), which blocks |
//! | load a module once for each device | [`ModuleCache`]; [`ModuleStore`] for texts that are known at run time only |
//! | pass a buffer | any [`KernelArg`]: the type of the argument states whether the kernel writes the buffer |
//! | pass a struct by value | [`KernelParam`], [`ByValue`] |
//! | choose the fastest of several launch shapes | [`Autotuner`], [`Function::occupancy`] |
//!
//! ```standalone_crate
//! use cuda_async::{kernel::load_ptx, prelude::*};
//! const PTX: &str = include_str!("../../../kernels/saxpy.ptx"); // made by `nvcc -ptx saxpy.cu`
//! let op = zip!(load_ptx(PTX), h2d(vec![1.0f32; 8]), h2d(vec![2.0f32; 8])).then(|(module, x, y)| {
//!     let saxpy = module.function("saxpy")?;
//!     // SAFETY: `saxpy(x, y, a, n)` adds `a * x` to `y`, of `n` elements each.
//!     Ok(unsafe { launch(&saxpy, LaunchConfig::for_num_elems(8), (x, y, 3.0f32, 8u32)) })
//! });
//! assert_eq!(op.then(|(_x, y)| to_host(y)).sync()?, [5.0; 8]);
//! # Ok::<(), cuda_async::Error>(())
//! ```

// This folder uses `op` and `context`. Programs call it directly or through `kernels!`. A typical call goes from
// `launch` to `Function::launch` in `handle/kernel/launch.rs` of `cuda-core`.

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
mod typed_args;

pub use arguments::{
    BufferTuple, Buffers, ByValue, KernelArg, KernelArgs, KernelBuffer, KernelParam, Returned,
    push_param, put_field,
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
pub use launch::{LaunchOp, Prepared, launch, launch_given, launch_unless_empty};
#[cfg(feature = "nvrtc")]
pub use modules::compile::CudaSource;
#[cfg(feature = "nvrtc")]
pub use modules::compile::{Compile, compile, compile_blocking};
pub use modules::{
    cache::{LoadCached, ModuleCache},
    code::Image,
    load::{LoadPtx, load_ptx},
    store::{LoadStored, ModuleStore},
};
pub use typed_args::{
    Aligned, AlignedAt, Group, KernelInput, KernelOutput, Reads, aligned, aligned_at, writes,
};
