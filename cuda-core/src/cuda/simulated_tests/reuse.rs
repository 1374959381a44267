//! Reuse of dropped memory without a free.

use super::*;
use crate::{Device, DeviceBuffer, MemoryPool, PoolOptions, Stream};

fn open() -> (Device, [Stream; 2]) {
    let device = Device::open(&Simulated, 0).unwrap();
    let streams = [(); 2].map(|()| device.new_stream().unwrap());
    (device, streams)
}

/// Allocates memory, fills it once the gate opens, and drops it. Returns its id.
fn drop_in_use_until(gate: u32, stream: &Stream, len: usize) -> AllocId {
    let mut memory = DeviceBuffer::<u32>::uninitialised(stream, len).unwrap();
    memory.fill(stream, gate).unwrap();
    memory.allocation().id()
}

fn allocate(stream: &Stream, len: usize) -> DeviceBuffer<u32> {
    DeviceBuffer::uninitialised(stream, len).unwrap()
}

#[test]
fn allocation_reuses_memory_that_was_dropped_on_the_same_stream() {
    let (device, [stream, _]) = open();
    let gate = driver::gate();
    let first = drop_in_use_until(gate, &stream, 8);
    let (again, other) = (allocate(&stream, 8), allocate(&stream, 8));
    assert_eq!(again.allocation().id(), first);
    assert_ne!(other.allocation().id(), first);
    assert_eq!(device.memory().unwrap().used, 64);
    driver::open(gate);
}

#[test]
fn memory_in_use_on_another_stream_is_not_reused() {
    let (_device, [stream, other]) = open();
    let gate = driver::gate();
    let first = drop_in_use_until(gate, &other, 8);
    assert_ne!(allocate(&stream, 8).allocation().id(), first);
    driver::open(gate);
    other.synchronize().unwrap();
    let mut second = allocate(&other, 8);
    second.fill(&other, gate).unwrap();
    other.synchronize().unwrap();
    let id = second.allocation().id();
    drop(second);
    assert_eq!(allocate(&stream, 8).allocation().id(), id);
}

#[test]
fn memory_of_another_size_or_pool_is_not_reused() {
    let (device, [stream, _]) = open();
    let pool = MemoryPool::new(&device, PoolOptions::new()).unwrap();
    let inside = stream.in_pool(&pool).unwrap();
    let open = driver::gate();
    driver::open(open);
    let first = drop_in_use_until(open, &stream, 8);
    assert_ne!(allocate(&stream, 4).allocation().id(), first);
    let first = drop_in_use_until(open, &stream, 8);
    assert_ne!(allocate(&inside, 8).allocation().id(), first);
    let first = drop_in_use_until(open, &inside, 8);
    assert_ne!(allocate(&stream, 8).allocation().id(), first);
    let first = drop_in_use_until(open, &inside, 8);
    assert_eq!(allocate(&inside, 8).allocation().id(), first);
    drop(inside);
    assert_eq!(pool.statistics().unwrap().used, 0);
}

#[test]
fn reused_memory_waits_on_another_stream_for_its_earlier_uses() {
    let (_device, [stream, other]) = open();
    let gate = driver::gate();
    let first = drop_in_use_until(gate, &stream, 8);
    let mut again = allocate(&stream, 8);
    assert_eq!(again.allocation().id(), first);
    let open = driver::gate();
    driver::open(open);
    again.fill(&other, open).unwrap();
    assert!(!other.query().unwrap());
    driver::open(gate);
    other.synchronize().unwrap();
}
