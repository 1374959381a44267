//! Graphs: operations that are recorded once and launched many times.
//!
//! A launch of a graph is one submission, so the work of a long chain of small kernels costs a fraction of its launches.
//! [`GraphExt::graph`] records an operation:
//!
//! ```
//! use cuda_async::{memory::fill, prelude::*};
//! let graph = zeros::<u32>(4).then(|x| fill(x, 7)).graph()?;
//! for _ in 0..3 {
//!     assert_eq!(graph.launch().then(to_host).sync()?, [7; 4]);
//! }
//! # Ok::<(), cuda_async::Error>(())
//! ```

// This folder uses `op`, `ops`, `context` and `run`. A typical call goes from `GraphExt::graph` to `record`, which polls the
// steps of the operation once with a stream of a `Recording` of `cuda-core`. `CudaGraph::launch` replays the recording.

mod cuda_graph;
mod loop_state;
mod record;
mod repeat_while;
mod slot;

pub use crate::memory::{DeviceScalar, HostSlot, ScalarMut};
#[doc(inline)]
pub use cuda_core::MAX_INSTANCES;
#[doc(hidden)]
pub use cuda_core::Recording;
pub use cuda_graph::{CudaGraph, GraphExt, LaunchGraph};
pub use loop_state::LoopState;
#[doc(hidden)]
pub use record::{Recorded, record};
pub use repeat_while::{RepeatWhile, repeat_while};
pub use slot::Slot;
