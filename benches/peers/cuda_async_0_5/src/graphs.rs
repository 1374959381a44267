//! Replays of recorded chains, with the rows and the effort of `benches/graphs/chains.rs`. Each measurement enqueues
//! one replay and waits for it.
//!
//! All rows of a chain use the same stream. The arguments of the peer's graphs are fixed when they are recorded, so
//! there are no rows for changed arguments. `.sync_on` does not read the spin budget.

use std::error::Error;

use benches::{
    Effort, Way, done,
    raw::{LEN, Lane, Raw},
    raw_graph::RawGraph,
    report, section,
};
use cuda_async::device_operation::DeviceOp;

use crate::peer::Peer;

pub fn measure(raw: &Raw, peer: &Peer) -> Result<(), Box<dyn Error>> {
    section("Graphs", &["median us", "to the first"]);
    let lane = raw.lane(LEN * 4)?;
    // SAFETY: both use the primary context of GPU 0; `peer` keeps the stream alive until the end of this function.
    let lane = unsafe { lane.on(peer.stream.cu_stream().cast()) };
    for (launches, rounds) in [(10, 200), (100, 40), (1000, 10)] {
        chain(&lane, peer, launches, rounds)?;
    }
    Ok(())
}

fn chain(
    lane: &Lane<'_>,
    peer: &Peer,
    launches: usize,
    rounds: usize,
) -> Result<(), Box<dyn Error>> {
    let raw_graph = RawGraph::chain(lane, launches);
    let (x, tracked) = (peer.buffer(LEN * 4)?, peer.tracked(LEN * 4)?);
    let chain = || peer.chain(launches, move |peer| peer.scale(x));
    let tracked_chain = || {
        let buffer = tracked.clone();
        peer.chain(launches, move |peer| peer.scale_tracked(&buffer, true))
    };
    let graph = chain().graph_on(peer.stream.clone())?;
    let tracked_graph = tracked_chain().graph_on(peer.stream.clone())?;
    let ways = vec![
        Way::new("raw driver, `cuGraphLaunch`", || {
            raw_graph.launch();
            lane.synchronize();
        }),
        Way::new("raw driver, launches", || {
            (0..launches).for_each(|_| lane.scale(lane.x));
            lane.synchronize();
        }),
        Way::new("peer, `CudaGraph` replay, `.sync_on`", || {
            done(graph.launch().sync_on(&peer.stream));
        }),
        Way::new("peer, `CudaGraph` replay, `.sync_on`, tracked buffer", || {
            done(tracked_graph.launch().sync_on(&peer.stream));
        }),
        Way::new("peer, launches, one operation, `.sync_on`", || {
            done(chain().sync_on(&peer.stream));
        }),
        Way::new("peer, launches, one operation, `.sync_on`, tracked buffer", || {
            done(tracked_chain().sync_on(&peer.stream));
        }),
    ];
    report(&format!("chain of {launches}"), ways, Effort { rounds, in_a_row: 10 });
    Ok(())
}
