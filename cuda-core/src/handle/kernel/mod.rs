//! Modules, their kernels, and launches.
//!
//! This folder uses `stream` and `memory`. [`Function::launch`] checks [`Arguments`] against the kernel's parameters
//! and goes to [`Stream`](super::Stream)'s `submit`.

mod launch;
mod module;

pub use launch::{ArgumentKind, Arguments};
pub use module::{CachedModule, Function, Loading, Module};
