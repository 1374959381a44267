//! Three concurrent kernels, compared with one.

use std::error::Error;

use benches::{
    Effort, Way, baseline::Fork, done, heartbeat::one_thread, raw::Raw, report, section,
};
use cuda_async::{
    device_operation::{DeviceOp, Zippable},
    zip,
};

use crate::peer::Peer;

const NANOS: u32 = 200_000;

pub fn measure(raw: &Raw, peer: &Peer) -> Result<(), Box<dyn Error>> {
    section("Forks", &["median us", "to the first"]);
    let fork = Fork::new(raw)?;
    let executor = one_thread();
    let buffers = [peer.buffer(8)?, peer.buffer(8)?, peer.buffer(8)?];
    let ops = || buffers.map(|x| peer.timed(x, NANOS));
    let zipped = || {
        let [a, b, c] = ops();
        zip!(a, b, c)
    };
    let sequential = || {
        let [a, b, c] = ops();
        a.then(move |()| b).then(move |()| c)
    };
    let joined_by_executor = || {
        executor.block_on(async {
            let [a, b, c] = ops();
            done(tokio::try_join!(a.into_future(), b.into_future(), c.into_future()));
        });
    };
    let mut ways = fork.ways(NANOS);
    ways.extend([
        Way::new("peer, one, `.sync_on`", || {
            let [a, ..] = ops();
            done(a.sync_on(&peer.stream));
        }),
        Way::new("peer, three in sequence, `.sync_on`", || {
            done(sequential().sync_on(&peer.stream));
        }),
        Way::new("peer, `zip!` of three, `.sync_on`", || {
            done(zipped().sync_on(&peer.stream));
        }),
        Way::new("peer, `zip!` of three, `.await`", || {
            done(executor.block_on(zipped().into_future()));
        }),
        Way::new(
            "peer, three futures in tokio's `try_join!`, its default policy",
            joined_by_executor,
        ),
    ]);
    report("kernels of 200 us", ways, Effort { rounds: 40, in_a_row: 25 });
    println!("| kernels of 200 us | peer, `join_all` | none: the crate has no such operation | |");
    Ok(())
}
