//! Replays of recorded chains, with the effort of `benches/graphs/chains.rs`. Each measurement enqueues one replay and
//! waits for it.
//!
//! All rows use the same stream and the same buffer, because the same driver calls can take some percent longer on
//! others. The arguments of the peer's graphs are fixed when they are recorded, so there are no rows for changed
//! arguments. The peer's `.sync_on` does not read its spin budget.

use std::{error::Error, sync::Arc};

use benches::{
    Effort, Way, done,
    raw::{LEN, Lane, Raw},
    raw_graph::RawGraph,
    report, section,
};
use cuda_async::device_operation::DeviceOp;
use cuda_core::{RawDeviceBuffer, Stream};

use crate::{
    ours::{Chain, Ours},
    peer::Peer,
};

pub fn measure(raw: &Raw, peer: &Peer) -> Result<(), Box<dyn Error>> {
    section("Graphs", &["median us", "to the first"]);
    let ours = Ours::new()?;
    let raw_stream = ours.raw_stream()?;
    // SAFETY: the stream belongs to the primary context, and `ours` keeps it alive until the end of this function.
    let stream = unsafe { Stream::borrow_raw(raw_stream, &peer.device) };
    for (launches, rounds) in [(10, 200), (100, 40), (1000, 10)] {
        let recorded = ours.chain(launches)?;
        // SAFETY: raw driver calls and the peer use the primary context of GPU 0 too. `ours` keeps the stream alive,
        // and `recorded` the buffer of `LEN` floats. One row at a time runs.
        let lane = unsafe { raw.lane(LEN * 4)?.on(raw_stream).with_memory(recorded.x) };
        let effort = Effort { rounds, in_a_row: 10 };
        chain(&lane, (peer, &stream), (&ours, &recorded), launches, effort)?;
    }
    Ok(())
}

fn chain(
    lane: &Lane<'_>,
    (peer, stream): (&Peer, &Arc<Stream>),
    (ours, recorded): (&Ours, &Chain),
    launches: usize,
    effort: Effort,
) -> Result<(), Box<dyn Error>> {
    let raw_graph = RawGraph::chain(lane, launches);
    let x = lane.x;
    // SAFETY: the memory of the lane is the buffer of `recorded`, which has `LEN` floats and outlives this value. Only
    // the launches with a tracked buffer use it through this value.
    let tracked =
        unsafe { RawDeviceBuffer::borrowed_from_raw_parts(x, LEN * 4, peer.device.clone()) };
    let chain = || peer.chain(launches, move |peer| peer.scale(x));
    let tracked_chain = || {
        let buffer = tracked.clone();
        peer.chain(launches, move |peer| peer.scale_tracked(&buffer, true))
    };
    let graph = chain().graph_on(stream.clone())?;
    let tracked_graph = tracked_chain().graph_on(stream.clone())?;
    use ours::prelude::DeviceOp as _;
    let ways = vec![
        Way::new("raw driver, `cuGraphLaunch`", || {
            raw_graph.launch();
            lane.synchronize();
        }),
        Way::new("peer, `CudaGraph` replay, `.sync_on`", || {
            done(graph.launch().sync_on(stream));
        }),
        Way::new("peer, `CudaGraph` replay, `.sync_on`, tracked buffer", || {
            done(tracked_graph.launch().sync_on(stream));
        }),
        Way::new("this library, `CudaGraph` replay, `.sync_on`", || {
            _ = done(recorded.graph.launch().sync_on(&ours.stream));
        }),
        Way::new("raw driver, launches", || {
            (0..launches).for_each(|_| lane.scale(lane.x));
            lane.synchronize();
        }),
        Way::new("peer, launches, one operation, `.sync_on`", || {
            done(chain().sync_on(stream));
        }),
        Way::new("peer, launches, one operation, `.sync_on`, tracked buffer", || {
            done(tracked_chain().sync_on(stream));
        }),
    ];
    report(&format!("chain of {launches}"), ways, effort);
    Ok(())
}
