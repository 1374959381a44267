//! Running operations: as a future, as a stream of results, or on a thread that blocks.

// This folder uses `op`, `context`, `policy` and `runtime`. The methods of `DeviceOp` call
// it. A typical call goes from `DeviceFuture`'s `poll` to
// `Submit::poll_submit`, and waits for the last submission of the run.

pub(crate) mod blocking;
mod future;
mod future_queue;
mod op_stream;
mod parker;

pub use future::DeviceFuture;
pub use op_stream::{OpStreamExt, RunBuffered};
