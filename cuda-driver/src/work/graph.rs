//! Launching graphs.

use std::sync::Arc;

use cuda_core::protocol::{GraphLaunch, HostBlock, Result};

use super::{node::node, place::Place};
use crate::context::Bound;

/// Launches a graph, with its changes.
///
/// # Safety
/// As for [`enqueue`](super::enqueue).
pub(super) unsafe fn launch(
    place: Place<'_>,
    launch: &GraphLaunch<'_>,
    host: &[Arc<HostBlock>],
    bound: &Bound,
) -> Result<()> {
    let names = place.names;
    let changes = launch.changes.iter().map(|change| {
        // SAFETY: no thread unloads the module of a launch before this returns.
        let work = unsafe { node(names, &change.work, host) }?;
        Ok((change.node, work))
    });
    // SAFETY: the modules of the nodes stay loaded, the stream is held, and no thread drops the graph before this
    // returns.
    unsafe { names.graphs.launch(launch.graph, changes, place.stream.raw, bound) }
}
