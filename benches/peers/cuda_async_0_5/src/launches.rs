//! One launch, and chains of launches on one stream.

use std::error::Error;

use benches::{
    Effort, Way, done,
    executor::Parking,
    raw::{LEN, Lane, Raw},
    report, section,
};
use cuda_async::device_operation::{DeviceOp, DeviceOpVec};

use crate::peer::Peer;

pub fn measure(raw: &Raw, peer: &Peer) -> Result<(), Box<dyn Error>> {
    section("Launches", &["median us", "to the first"]);
    let lane = raw.lane(LEN * 4)?;
    one(&lane, peer)?;
    chain(&lane, peer, 100, 40)?;
    chain(&lane, peer, 1000, 10)
}

fn one(lane: &Lane<'_>, peer: &Peer) -> Result<(), Box<dyn Error>> {
    let (x, tracked) = (peer.buffer(LEN * 4)?, peer.tracked(LEN * 4)?);
    let executor = Parking::new();
    let ways = vec![
        Way::new("raw driver", || {
            lane.scale(lane.x);
            lane.synchronize();
        }),
        Way::new("peer, `.sync_on(&stream)`", || done(peer.scale(x).sync_on(&peer.stream))),
        Way::new("peer, `.sync_on(&stream)`, tracked buffer", || {
            done(peer.scale_tracked(&tracked, true).sync_on(&peer.stream));
        }),
        Way::new("peer, `.sync()`", || done(peer.scale(x).sync())),
        Way::new("peer, `.await`, single stream", || {
            done(executor.block_on(done(peer.scale(x).schedule(&peer.single))));
        }),
        Way::new("peer, `.await`, its default policy", || {
            done(executor.block_on(peer.scale(x).into_future()));
        }),
        Way::new("peer, `.await`, its default policy, tracked buffer", || {
            done(executor.block_on(peer.scale_tracked(&tracked, true).into_future()));
        }),
    ];
    report("launch + synchronize", ways, Effort { rounds: 40, in_a_row: 100 });
    Ok(())
}

fn chain(
    lane: &Lane<'_>,
    peer: &Peer,
    launches: usize,
    rounds: usize,
) -> Result<(), Box<dyn Error>> {
    let (x, tracked) = (peer.buffer(LEN * 4)?, peer.tracked(LEN * 4)?);
    let executor = Parking::new();
    let chain = || peer.chain(launches, move |peer| peer.scale(x));
    let vector = || DeviceOpVec::new((0..launches).map(|_| peer.scale(x).boxed()).collect());
    let graph = chain().graph_on(peer.stream.clone())?;
    let ways = vec![
        Way::new("raw driver", || {
            (0..launches).for_each(|_| lane.scale(lane.x));
            lane.synchronize();
        }),
        Way::new("peer, one operation, `.sync_on`", || done(chain().sync_on(&peer.stream))),
        Way::new("peer, one operation, `.sync_on`, tracked buffer", || {
            let buffer = tracked.clone();
            let op = peer.chain(launches, move |peer| peer.scale_tracked(&buffer, true));
            done(op.sync_on(&peer.stream));
        }),
        Way::new("peer, one operation, `.await`, single stream", || {
            done(executor.block_on(done(chain().schedule(&peer.single))));
        }),
        Way::new("peer, `DeviceOpVec`, `.sync_on`", || {
            drop(done(vector().sync_on(&peer.stream)));
        }),
        Way::new("peer, `CudaGraph` replay, `.sync_on`", || {
            done(graph.launch().sync_on(&peer.stream));
        }),
    ];
    report(&format!("chain of {launches}"), ways, Effort { rounds, in_a_row: 5 });
    Ok(())
}
