//! Graphs: operations that are recorded once and launched many times.
//!
//! A launch of a graph is one submission, so a long chain of small kernels costs a fraction of its separate launches.
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
//!
//! The inputs of a graph change between launches in these ways:
//!
//! | to | use |
//! |---|---|
//! | write new values into a buffer that the graph reads | [`upload_into`](crate::memory::upload_into), run before the launch or by [`CudaGraph::update`] |
//! | upload host values in every launch | [`HostSlot`] |
//! | exchange a buffer for another one | [`CudaGraph::slot`] |
//!
//! ```
//! use cuda_async::{memory::{copy, upload_into}, prelude::*};
//! let mut input = zeros::<u32>(2).sync()?;
//! let copied = zeros::<u32>(2).then(|y| copy(&input, y)).map(|(_, y)| y).graph()?;
//! for n in 0..3 {
//!     upload_into(&mut input, vec![n, n + 1]).sync()?; // the recording does not borrow `input`
//!     assert_eq!(copied.launch().then(to_host).sync()?, [n, n + 1]);
//! }
//! # Ok::<(), cuda_async::Error>(())
//! ```
//!
//! [`PlanExt::plan`] shows the work of an operation without running it, and [`CudaGraph::plan`] shows that of a graph.
//! [`CudaGraph::profile`] measures each node. The names of operations ([`named`](crate::DeviceOp::named)) appear in all
//! of them.

// This folder uses `op`, `ops`, `memory`, `context` and `run`. A typical call goes from `GraphExt::graph` to `record`,
// which polls the steps of the operation once with a stream of a `Recording` of `cuda-core`. `CudaGraph::launch`
// replays the recording. `PlanExt::plan` shows the nodes of an operation without running them, and `CudaGraph::profile`
// replays the nodes of a graph one by one and measures them.

mod capture;
mod cuda_graph;
mod plan;
mod profile;
mod record;
mod repeat_while;

pub use crate::memory::{DeviceScalar, HostSlot, ScalarMut};
pub use capture::{
    Capture, CapturedGraph, Scope, begin_capture, begin_capture_with_pool, end_capture,
};
#[doc(hidden)]
pub use cuda_core::internals::Recording;
#[doc(inline)]
pub use cuda_core::{CapturePool, internals::MAX_INSTANCES};
pub use cuda_graph::{CudaGraph, GraphExt, LaunchGraph, Slot};
pub use plan::{Plan, PlanExt, PlanNode, PlanWork};
pub use profile::{Profile, ProfileGraph};
#[doc(hidden)]
pub use record::{Recorded, record};
pub use repeat_while::{LoopState, Position, RepeatWhile, repeat_while};
