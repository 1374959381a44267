//! Graphs against unusual orders of calls.

use std::sync::Arc;

use cuda_async::{
    graph::{CapturePool, begin_capture_with_pool, end_capture},
    memory::{copy, fill},
    prelude::*,
};

use crate::polling::own_devices;

const LEN: usize = 8;

/// The buffer has a handle when its capture ends, so no other graph of the pool may write it.
#[test]
fn outputs_of_pooled_graphs_are_not_overwritten() {
    for device in own_devices() {
        let (stream, pool) = (device.new_stream().unwrap(), CapturePool::new());
        let y = zeros::<u32>(LEN).sync_on(&stream).unwrap();
        let first = begin_capture_with_pool(&stream, &pool).unwrap();
        let t = first.record(zeros::<u32>(LEN).then(|t| fill(t, 1))).unwrap();
        let (_, y) = first.record(copy(t, y)).unwrap();
        let first = end_capture(first).unwrap();
        let second = begin_capture_with_pool(&stream, &pool).unwrap();
        let z = second.record(zeros::<u32>(LEN).then(|z| fill(z, 2))).unwrap();
        let second = end_capture(second).unwrap();
        second.launch().sync_on(&stream).unwrap();
        first.launch().sync_on(&stream).unwrap();
        assert_eq!(to_host(&y).sync_on(&stream).unwrap(), [1; LEN]);
        assert_eq!(to_host(&z).sync_on(&stream).unwrap(), [2; LEN]);
    }
}

/// A recording marks a buffer that it only reads. Handles of it may be in use, so no graph may write it.
#[test]
fn shared_buffers_of_other_graphs_are_not_written() {
    for device in own_devices() {
        let stream = device.new_stream().unwrap();
        let x = Arc::new(h2d(vec![5u32; LEN]).sync_on(&stream).unwrap());
        let reads = zeros::<u32>(LEN).then({
            let x = x.clone();
            move |y| copy(x, y)
        });
        let _reader = reads.graph_on(&stream).unwrap();
        let writer = zeros::<u32>(LEN).then(|y| fill(y, 7)).graph_on(&stream).unwrap();
        let y = writer.launch().sync_on(&stream).unwrap();
        let slot = writer.slot(&*y).unwrap();
        assert!(slot.set(&x).is_err(), "a shared buffer is written");
    }
}
