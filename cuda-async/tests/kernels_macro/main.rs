//! `kernels!`: forms that compile, and launches. Mistakes and their messages are in `cuda-async/compile-fail`.

#[cfg(feature = "cpu")]
mod allocations;
#[cfg(feature = "cpu")]
mod alternatives;
#[cfg(feature = "cpu")]
mod checked;
#[cfg(feature = "cpu")]
mod cuda_sources;
#[allow(dead_code)]
mod forms;
#[cfg(feature = "cpu")]
mod launch_attributes;
#[cfg(feature = "cpu")]
mod lazy;
#[cfg(feature = "cpu")]
mod named_parts;
#[cfg(feature = "cpu")]
mod run;
#[cfg(feature = "cpu")]
mod structs;
#[cfg(feature = "cpu")]
mod variables;
