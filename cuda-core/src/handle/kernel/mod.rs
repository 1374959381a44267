//! Modules, their kernels, and launches.
//!
//! This folder uses `stream` and `memory`. [`Function::launch`] checks [`Arguments`] against the kernel's parameters
//! and goes to [`Stream`](super::Stream)'s `submit`.

mod arguments;
mod launch;
mod loading;
mod module;
mod occupancy;
mod variables;

pub use arguments::{ArgumentKind, Arguments};
pub use loading::Loading;
pub use module::{CachedModule, Function, Module};
