//! Recordings: work that was recorded once and is submitted again and again.
//!
//! A stream of a recording takes work as every stream does, but gives it to a [`Recorder`](super::stream::Recorder)
//! instead of a backend. Ending the recording gives a [`Recording`], which replays on a live stream: as one submission,
//! if the backend has prepared its executable, or else node by node. A plan is a recording that never runs. The
//! folder uses `stream` and `device`.
//!
//! A replay goes from [`Recording`] to the `bindings`, which know the nodes that changed since they were recorded, and
//! to an `instance`, which has an executable and the memory of its temporary buffers. [`LaunchResources`] keeps
//! the resources of its launches until they are complete.

mod access_set;
mod bindings;
mod instance;
#[allow(clippy::module_inception)]
mod recording;
mod repeat;
mod temporary;

pub use instance::{LaunchResources, MAX_INSTANCES};
pub use recording::{RecordedNode, Recording, end_plan, start_plan};
