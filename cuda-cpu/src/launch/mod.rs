//! Programs, and launches of their kernels.
//!
//! [`Program::load`] decodes a module, and [`Program::launch`] runs a kernel. A launch (`grid`) distributes its blocks
//! to workers: the launching thread, and threads of a pool (`crew`). This folder uses `decode`, `observe`, `schedule`
//! and the layers below. `device` calls it.

mod crew;
mod description;
mod grid;
mod program;

pub use description::{Invalid, Launch, LaunchDims, LaunchError, Limits};
pub(crate) use program::count_in;
pub use program::{Entry, EntryParam, Program, Resources};
