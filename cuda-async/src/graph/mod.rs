//! Recordings: operations that are submitted once to a recording and then replayed.

// This folder uses `op`, `context` and `run`. CUDA graphs are built on it. A typical call goes from `record` to the
// steps of the operation, which submit to a stream of a `Recording` of `cuda-core`.

mod record;

pub use cuda_core::Recording;
pub use record::{Recorded, record};
