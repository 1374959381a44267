//! Items that only the crate `cuda-tensor` uses. They may change in any release.
//!
//! | for | items |
//! |---|---|
//! | tensors as arguments of kernels | [`ArcBuffer`], [`Buffer`], [`buffer_forms`] |
//! | steps of operations, and copies on the host | [`LargeCopy`], [`is_large`] |
//! | kernels, libraries and collectives: waits of a run | [`module_loaded_by`], [`may_wait`], [`wait_by_wakers`], [`poll_submission_on`] |
//! | memory of candle (feature `cudarc`) | `into_slice_ordered`, `add_stream` |

#[cfg(feature = "cudarc")]
pub use crate::interop::{add_stream, into_slice_ordered};
use std::task::{Context, Poll};

use cuda_core::Waiter;

use crate::{
    ExecutionContext, Op, Result, Stream,
    kernel::{LoadCached, ModuleCache},
};
pub use crate::{
    buffer_forms,
    kernel::arguments::{ArcBuffer, Buffer},
    memory::host_copy::{LargeCopy, is_large},
};

/// Checks that steps may wait in this run.
///
/// # Errors
/// [`Error::NeedsHostData`](crate::Error::NeedsHostData) if they may not. It names `step`.
pub fn may_wait(cx: &ExecutionContext, step: &'static str) -> Result<()> {
    cx.waits().may_wait(step)
}

/// Makes all later waits of this run use wakers, also in a blocking run.
///
/// # Errors
/// [`Error::NeedsHostData`](crate::Error::NeedsHostData), which names `step`, if steps may not wait in this run.
pub fn wait_by_wakers(cx: &ExecutionContext, step: &'static str, task: &Context<'_>) -> Result<()> {
    cx.waits().wait_by_wakers(step, task)
}

/// Polls until a submission of another stream is complete.
///
/// # Errors
/// The error of the submission.
pub fn poll_submission_on(
    cx: &ExecutionContext,
    stream: &Stream,
    number: u64,
    waiter: &mut Option<Waiter>,
    task: &mut Context<'_>,
) -> Poll<Result<()>> {
    cx.waits().poll_submission_on(stream, number, waiter, task)
}

/// Returns an operation that gives the module of a cache. The error [`Error::NotLoaded`](crate::Error::NotLoaded) names
/// `operation`, which loads the module for this caller.
pub fn module_loaded_by<'a>(cache: &'a ModuleCache, operation: &'static str) -> Op<LoadCached<'a>> {
    cache.module_loaded_by(operation)
}
