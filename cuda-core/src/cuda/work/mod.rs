//! Work: turns each [`Work`] into one driver call.
//!
//! Uses `objects` for addresses and functions, and `driver`. The backend calls [`enqueue`] after it found the stream and
//! ordered it after others. Failures of these calls refuse the submission.

mod copy;
mod launch;
mod peers;

use std::sync::Arc;

pub(crate) use peers::reach;

use super::{
    context::{Bound, Primary},
    objects::{Memory, Modules},
    streams::Stream,
};
use crate::protocol::{HostBlock, Result, Work};

/// The place where work is enqueued: a stream that the caller holds, and the objects of its backend.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) primary: &'static Primary,
    pub(crate) memory: &'a Memory,
    pub(crate) modules: &'a Modules,
    pub(crate) stream: &'a Stream,
}

/// Enqueues work on a stream.
///
/// # Safety
/// The promises of [`Backend::submit`](crate::protocol::Backend::submit).
#[inline]
pub(crate) unsafe fn enqueue(
    place: Place<'_>,
    work: &Work<'_>,
    host: &[Arc<HostBlock>],
    bound: &Bound,
) -> Result<()> {
    match work {
        // SAFETY: the caller's promise.
        Work::Launch(launch) => unsafe { launch::launch(place, launch, bound) },
        Work::Join => Ok(()),
        Work::Upload { from, to, bytes } => copy::upload(place, *from, *to, *bytes, host, bound),
        Work::Download { from, to, bytes } => {
            copy::download(place, *from, *to, *bytes, host, bound)
        }
        Work::Copy { from, to, bytes } => copy::copy(place, *from, *to, *bytes, bound),
        Work::Fill { to, pattern, count } => copy::fill(place, *to, *pattern, *count, bound),
        Work::Send { from, transfer, bytes } => peers::send(place, *from, *transfer, *bytes, bound),
    }
}
