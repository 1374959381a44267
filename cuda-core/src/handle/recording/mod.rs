//! Recordings: work that was recorded once and is submitted again and again.
//!
//! A stream of a recording takes work as every stream does, but gives it to a [`Recorder`](super::stream::Recorder) instead
//! of a backend. Ending the recording gives a [`Recording`], which replays on a live stream: as one submission, if the
//! backend has prepared its executable, or else node by node. The folder uses `stream` and `device`.

mod executable;
#[allow(clippy::module_inception)]
mod recording;

pub use recording::Recording;
