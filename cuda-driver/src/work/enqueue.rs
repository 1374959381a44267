//! Dispatches each kind of work to its driver call.

use std::sync::Arc;

use cuda_core::protocol::{Error, Feature, HostBlock, Result, Work};

use super::{copy, graph, launch, peers, place::Place, timestamp};
use crate::context::Bound;

/// Enqueues work on a stream.
///
/// # Safety
/// The promises of [`Backend::submit`](cuda_core::protocol::Backend::submit).
#[inline]
pub(crate) unsafe fn enqueue(
    place: Place<'_>,
    work: &Work<'_>,
    host: &[Arc<HostBlock>],
    bound: &Bound,
) -> Result<()> {
    match work {
        // SAFETY: no thread unloads the kernel's module or retires the stream before this returns, and the kernel stays
        // inside the memory of its relocations.
        Work::Launch(launch) => unsafe { launch::launch(place, launch, bound) },
        Work::Join => Ok(()),
        // SAFETY: the block in `host` is alive, and its bytes do not change, until the stream has passed the copy.
        Work::Upload { from, to, bytes } => unsafe {
            copy::upload(place, *from, *to, *bytes, host, bound)
        },
        // SAFETY: the block in `host` is alive, and no thread accesses its bytes, until the stream has passed the copy.
        Work::Download { from, to, bytes } => unsafe {
            copy::download(place, *from, *to, *bytes, host, bound)
        },
        Work::Copy { from, to, bytes } => copy::copy(place, *from, *to, *bytes, bound),
        Work::Fill { to, pattern, count } => copy::fill(place, *to, *pattern, *count, bound),
        Work::Timestamp { to } => timestamp::write(place, *to, bound),
        // SAFETY: no thread drops the graph, unloads a module or retires the stream before this returns. The blocks in
        // `host` stay alive and unchanged until the work is complete.
        Work::Graph(launch) => unsafe { graph::launch(place, launch, host, bound) },
        Work::Repeat(_) | Work::Foreign(_) => {
            Err(Error::unsupported(Feature::WorkOutsideGraph, &place.names.primary.info.address))
        }
        Work::Send { from, transfer, bytes } => peers::send(place, *from, *transfer, *bytes, bound),
        _ => Err(Error::unsupported(Feature::Work, &place.names.primary.info.address)),
    }
}
