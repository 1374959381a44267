//! Modules, their kernels, and launches.
//!
//! Uses `stream` and `memory`. [`Function::launch`] checks [`Arguments`] against the kernel's parameters and goes to
//! [`Stream`](super::Stream)'s `submit`.

mod arguments;
mod launch;
mod list;
mod module;
mod parameter;
mod variables;

pub use arguments::Arguments;
pub use module::{CachedModule, Function, Loading, Module};
pub use parameter::ArgumentKind;
