//! Modules, their kernels, and launches.
//!
//! Uses `stream` and `memory`. [`Function::launch`] checks [`Arguments`] against the kernel's parameters and goes to
//! [`Stream`](super::Stream)'s `submit`.

mod arguments;
mod foreign_launch;
mod function;
mod launch;
mod list;
mod loading;
mod module;
mod occupancy;
mod parameter;
mod variables;

pub use arguments::Arguments;
pub use function::Function;
pub use loading::Loading;
pub use module::{CachedModule, Module};
pub use parameter::ArgumentKind;
