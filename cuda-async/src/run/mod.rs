//! Running operations: as a future, as a stream of results, or on a thread that blocks.
//!
//! | call | calling thread | is ready or returns |
//! |---|---|---|
//! | `op.await`, [`into_future`](std::future::IntoFuture::into_future) for `tokio::spawn` | runs other tasks | when the device has completed the work |
//! | [`op.schedule(&policy)`](crate::DeviceOp::schedule) | goes on | the future: when the device has completed the work |
//! | [`op.sync()`](crate::DeviceOp::sync), [`op.sync_on(&stream)`](crate::DeviceOp::sync_on) | blocks | when the device has completed the work |
//! | [`op.async_on(&stream)`](crate::DeviceOp::async_on) | goes on | when the work is submitted |
//! | [`ops.run_buffered(n)`](OpStreamExt::run_buffered) and its relatives | runs other tasks | for each operation of a stream, with at most `n` in flight |
//!
//! ```
//! use cuda_async::prelude::*;
//! use futures::{StreamExt, executor::block_on, stream};
//! let ops = (0..100u32).map(|n| h2d(vec![n]).then(to_host).map(|v| v[0]));
//! let sum = stream::iter(ops).run_buffered(8).fold(0, |sum, n| async move { sum + n.unwrap_or(0) });
//! assert_eq!(block_on(sum), 4950);
//! ```

// This folder uses `op`, `context`, `policy` and `runtime`. The methods of `DeviceOp` call it. A typical call goes from
// `DeviceFuture`'s `poll` to `Submit::submit`, and waits for the last submission of the run.

pub(crate) mod blocking;
mod future;
mod op_stream;

pub use future::DeviceFuture;
#[doc(hidden)]
pub use future::{IsFuture, Operation};
pub use op_stream::{OpStreamExt, RunBuffered};
