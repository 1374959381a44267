//! Compiles CUDA C++ to PTX with NVRTC, NVIDIA's compiler library. The crate builds without it: it looks for the
//! library when it first compiles.
//!
//! - [`Source`] is a text with the headers that it includes. [`Options`] are the options of the compiler.
//! - [`Nvrtc::find`] returns the library, and [`Nvrtc::compile`] compiles.
//! - [`Cache`] keeps results on disk, and [`compile`] uses both.
//! - [`resolve()`] compiles a source, or takes the PTX beside it on machines without NVRTC. `kernels!` of `cuda-async`
//!   calls it while a program is built. [`build_script::compile`] is for build scripts.
//! - [`signature`] reads the types of a kernel's parameters from mangled names.
//!
//! ```no_run
//! use cuda_nvrtc::{Options, Source};
//!
//! let source = Source::from_text("zero.cu", "extern \"C\" __global__ void zero(float *x) { x[threadIdx.x] = 0; }");
//! let ptx = cuda_nvrtc::compile(&source, &Options::new())?;
//! assert!(ptx.text.contains(".entry zero"));
//! # Ok::<(), cuda_nvrtc::Error>(())
//! ```
//!
//! # Environment variables
//! | variable | meaning |
//! |---|---|
//! | `CUDA_NVRTC` | the library, or the folder that holds it; `off`: behave as if NVRTC were not installed |
//! | `CUDA_NVRTC_CACHE` | the folder of the cache; `off`: no cache |
//! | `CUDA_PATH`, `CUDA_HOME`, `VIRTUAL_ENV` | where the library is looked for |

// Files, lowest first: `error`, `options`, `source`, `ptx`, `signature`, then `find`, `library` (the only unsafe code),
// `nvrtc`, `cache`, `resolve` and `build_script`.
#![deny(missing_docs)]

pub mod build_script;
mod cache;
mod error;
mod find;
mod library;
mod nvrtc;
mod options;
mod ptx;
mod resolve;
pub mod signature;
mod source;

pub use cache::{Cache, MAX_CACHE_BYTES, compile, compile_with, compile_with_types};
pub use error::{Error, Result};
pub use nvrtc::Nvrtc;
pub use options::{DEFAULT_ARCHITECTURE, Options};
pub use ptx::Ptx;
pub use resolve::{Origin, Resolved, resolve, resolve_with};
pub use source::{Header, Source};

/// Environment variables that decide which compiler is found. A build that compiles depends on them.
pub const VARIABLES: [&str; 4] = ["CUDA_NVRTC", "CUDA_PATH", "CUDA_HOME", "VIRTUAL_ENV"];
