//! Time and heap allocations of building operations and of running them.

use std::{error::Error, hint::black_box};

use benches::{
    done,
    executor::Parking,
    heap::cost,
    heartbeat::one_thread,
    raw::{LEN, Raw},
    section,
};
use cuda_async::{
    device_operation::{DeviceOp, Zippable},
    zip,
};

use crate::peer::Peer;

pub fn measure(_: &Raw, peer: &Peer) -> Result<(), Box<dyn Error>> {
    section("Building and running", &["ns", "heap allocations"]);
    let x = peer.buffer(LEN * 4)?;
    let op = || peer.scale(x);
    let what = "building and dropping";
    cost(what, "peer, a launch", || drop(black_box(op())));
    println!(
        "| {what} | peer, upload, launch, read back | none: cuda-async has no copy operations (cutile has) | |"
    );
    cost(what, "peer, `zip!` of three launches", || drop(black_box(zip!(op(), op(), op()))));
    let (parking, tokio) = (Parking::new(), one_thread());
    let what = "running a launch";
    cost(what, "peer, `.sync_on`", || done(op().sync_on(&peer.stream)));
    cost(what, "peer, `.await`, single stream, park and unpark", || {
        done(parking.block_on(done(op().schedule(&peer.single))));
    });
    cost(what, "peer, `.await`, its default policy, park and unpark", || {
        done(parking.block_on(op().into_future()));
    });
    cost(what, "peer, `.await`, its default policy, tokio, one thread", || {
        done(tokio.block_on(op().into_future()));
    });
    Ok(())
}
