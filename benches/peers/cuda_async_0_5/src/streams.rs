//! One buffer on two streams: a write on stream A, then a read on stream B without synchronization between them.
//!
//! The peer records the accesses of a tracked buffer. It does not order them; it refuses the second access.

use std::{
    error::Error,
    fmt::Debug,
    future::Future,
    pin::pin,
    task::{Context, Waker},
};

use benches::{
    executor::Parking,
    raw::{LEN, Raw},
};
use cuda_async::{device_operation::DeviceOp, scheduling_policies::SingleStream};
use cuda_core::DeviceBuffer;

use crate::peer::Peer;

/// The duration of the write, which is longer than all later steps together.
const NANOS: u32 = 20_000_000;

pub fn measure(_: &Raw, peer: &Peer) -> Result<(), Box<dyn Error>> {
    println!("\n## One buffer on two streams\n\n| what | result |\n|---|---|");
    let (a, b) = (SingleStream::new(&peer.device)?, peer.device.new_stream()?);
    let storage = peer.tracked(LEN * 4)?;
    // SAFETY: the memory has `LEN` floats, all of them zero.
    let buffer = unsafe { DeviceBuffer::<f32>::from_storage_copy(storage.clone(), LEN)? };
    let mut write = pin!(peer.timed_tracked(&storage, NANOS).schedule(&a)?);
    let first = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    row("write on A, polled once", first.map(|result| result.map(drop)));
    row("read by a kernel on B", peer.scale_tracked(&storage, false).sync_on(&b));
    row("read by `to_host_vec` on B", buffer.to_host_vec(&b).map(|host| host.len()));
    row("read by a kernel on A", peer.scale_tracked(&storage, false).sync_on(a.stream()));
    row("write on A, awaited", Parking::new().block_on(write));
    row("read by a kernel on B afterwards", peer.scale_tracked(&storage, false).sync_on(&b));
    Ok(())
}

fn row(what: &str, result: impl Debug) {
    println!("| {what} | `{result:?}` |");
}
