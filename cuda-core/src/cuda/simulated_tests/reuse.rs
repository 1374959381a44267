//! Dropped memory that a stream uses again without a free.

use super::*;
use crate::{Device, DeviceBuffer, MemoryPool, PoolOptions, Stream};

fn open() -> (Device, [Stream; 2]) {
    let device = Device::open(&Simulated, 0).unwrap();
    let streams = [(); 2].map(|()| device.new_stream().unwrap());
    (device, streams)
}

/// Allocates memory that stays in use until the gate opens, and drops it.
fn used_until(gate: u32, stream: &Stream, len: usize) -> AllocId {
    let mut memory = DeviceBuffer::<u32>::uninitialised(stream, len).unwrap();
    memory.fill(stream, gate).unwrap();
    memory.allocation().id()
}

fn allocate(stream: &Stream, len: usize) -> DeviceBuffer<u32> {
    DeviceBuffer::uninitialised(stream, len).unwrap()
}

#[test]
fn stream_uses_dropped_memory_of_its_own_again() {
    let (device, [stream, _]) = open();
    let gate = driver::gate();
    let first = used_until(gate, &stream, 8);
    let (again, other) = (allocate(&stream, 8), allocate(&stream, 8));
    assert_eq!(again.allocation().id(), first);
    assert_ne!(other.allocation().id(), first);
    assert_eq!(device.memory().unwrap().used, 64);
    driver::open(gate);
}

#[test]
fn memory_in_use_on_another_stream_is_not_used_again() {
    let (_device, [stream, other]) = open();
    let gate = driver::gate();
    let first = used_until(gate, &other, 8);
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
fn memory_of_another_size_or_pool_is_not_used_again() {
    let (device, [stream, _]) = open();
    let pool = MemoryPool::new(&device, PoolOptions::new()).unwrap();
    let inside = stream.in_pool(&pool).unwrap();
    let open = driver::gate();
    driver::open(open);
    let first = used_until(open, &stream, 8);
    assert_ne!(allocate(&stream, 4).allocation().id(), first);
    let first = used_until(open, &stream, 8);
    assert_ne!(allocate(&inside, 8).allocation().id(), first);
    let first = used_until(open, &inside, 8);
    assert_ne!(allocate(&stream, 8).allocation().id(), first);
    let first = used_until(open, &inside, 8);
    assert_eq!(allocate(&inside, 8).allocation().id(), first);
    drop(inside);
    assert_eq!(pool.statistics().unwrap().used, 0);
}

/// Work on other streams comes after the uses of the memory before.
#[test]
fn memory_that_is_used_again_is_ordered_between_streams() {
    let (_device, [stream, other]) = open();
    let gate = driver::gate();
    let first = used_until(gate, &stream, 8);
    let mut again = allocate(&stream, 8);
    assert_eq!(again.allocation().id(), first);
    let open = driver::gate();
    driver::open(open);
    again.fill(&other, open).unwrap();
    assert!(!other.query().unwrap());
    driver::open(gate);
    other.synchronize().unwrap();
}
