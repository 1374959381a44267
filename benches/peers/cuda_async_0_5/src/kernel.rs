//! A kernel that outlasts the spin budget: the cost of a wake.

use std::error::Error;

use benches::{
    Effort, Way, baseline, done, executor::Parking, heartbeat::one_thread, raw::Raw, report,
    section,
};
use cuda_async::device_operation::DeviceOp;

use crate::peer::Peer;

const NANOS: u32 = 100_000;

pub fn measure(raw: &Raw, peer: &Peer) -> Result<(), Box<dyn Error>> {
    section("Wake", &["median us", "to the first"]);
    let lane = raw.lane(4096)?;
    let x = peer.buffer(8)?;
    let (tokio, parking) = (one_thread(), Parking::new());
    let op = || peer.timed(x, NANOS);
    let single = || done(op().schedule(&peer.single));
    let mut ways = baseline::woken(&lane, NANOS)?;
    ways.extend([
        Way::new("peer, `.sync_on(&stream)`", || done(op().sync_on(&peer.stream))),
        Way::new("peer, `.await`, its default policy, tokio", || {
            done(tokio.block_on(op().into_future()));
        }),
        Way::new("peer, `.await`, single stream, tokio", || done(tokio.block_on(single()))),
        Way::new("peer, `.await`, single stream, park and unpark", || {
            done(parking.block_on(single()));
        }),
    ]);
    report("kernel of 100 us", ways, Effort { rounds: 40, in_a_row: 25 });
    Ok(())
}
