//! Recordings: work that was recorded once and is submitted again and again.
//!
//! A stream of a recording takes work as every stream does, but gives it to a [`Recorder`](super::stream::Recorder) instead
//! of a backend. Ending the recording gives a [`Recording`], which replays on a live stream: as one submission, if the
//! backend has prepared its executable, or else node by node. A plan ([`planning`]) is a recording that never runs, and [`nodes`] describes the nodes
//! of both. The folder uses `stream` and `device`.

mod executable;
mod nodes;
mod planning;
#[allow(clippy::module_inception)]
mod recording;

pub use nodes::RecordedNode;
pub use recording::Recording;
