//! Memory pools and reserved addresses of a GPU.

use std::time::Duration;

use cuda_core::{
    Error, Result,
    protocol::{
        AllocId, Control, PoolId, PoolMemory, PoolSpec, Region, Reply, Request, StreamId, Work,
    },
};

use crate::harness::{Gpu, eventually, gpu, in_a_child};

const MIB: u64 = 1 << 20;

fn create(gpu: &Gpu, id: u64) -> PoolId {
    let (id, spec) = (PoolId(id), PoolSpec::new(u64::MAX));
    gpu.control(Control::CreatePool { id, spec }).unwrap();
    id
}

fn allocate_in(gpu: &Gpu, stream: StreamId, pool: PoolId, bytes: u64, id: u64) -> Result<AllocId> {
    let id = AllocId(id);
    gpu.number(stream, |at| gpu.control(Control::AllocateIn { pool, id, bytes, at }))?;
    Ok(id)
}

fn memory_of(gpu: &Gpu, request: Request) -> PoolMemory {
    match gpu.request(request).unwrap() {
        Reply::Pool(memory) => memory,
        other => panic!("{other:?}"),
    }
}

#[test]
fn pool_reserves_memory_and_returns_it_at_a_trim() {
    let Some(gpu) = gpu() else { return };
    let (stream, pool) = (gpu.stream(), create(&gpu, 1 << 40));
    let empty = memory_of(&gpu, Request::PoolMemory { pool });
    assert_eq!((empty.reserved, empty.release_threshold), (0, u64::MAX));
    let allocation = allocate_in(&gpu, stream, pool, 64 * MIB, 1 << 41).unwrap();
    gpu.sync(stream).unwrap();
    assert!(memory_of(&gpu, Request::PoolMemory { pool }).reserved >= 64 * MIB);
    // In use.
    assert!(memory_of(&gpu, Request::TrimPool { pool, keep: 0 }).reserved >= 64 * MIB);
    gpu.free(stream, allocation);
    let is_returned = || {
        let memory = memory_of(&gpu, Request::TrimPool { pool, keep: 0 });
        assert!(memory.reserved_peak >= 64 * MIB);
        memory.reserved < 64 * MIB
    };
    assert!(eventually(Duration::from_secs(20), is_returned));
    gpu.control(Control::DropPool { id: pool }).unwrap();
    assert!(gpu.request(Request::PoolMemory { pool }).is_err());
}

/// In a process of its own: it takes most of the memory.
#[test]
fn memory_that_other_pools_keep_is_found_again() {
    in_a_child("pools::child_memory_of_other_pools");
}

#[test]
#[ignore = "takes most of the memory: run by `memory_that_other_pools_keep_is_found_again`"]
fn child_memory_of_other_pools() {
    let Some(gpu) = gpu() else { return };
    let (stream, one, two) = (gpu.stream(), create(&gpu, 1 << 40), create(&gpu, 1 << 41));
    let Reply::Memory(memory) = gpu.request(Request::Memory).unwrap() else { panic!() };
    let bytes = memory.free / 3 * 2;
    let mut next = 1 << 42;
    for pool in [one, two, one] {
        next += 1;
        let allocation = allocate_in(&gpu, stream, pool, bytes, next).unwrap();
        gpu.free(stream, allocation);
        gpu.sync(stream).unwrap();
        // The free is behind the last submission, which was synchronized.
        std::thread::sleep(Duration::from_millis(50));
    }
    let allocation = gpu.alloc(stream, bytes);
    let refused = allocate_in(&gpu, stream, one, bytes, 1 << 43);
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
    gpu.free(stream, allocation);
}

#[test]
fn reserved_addresses_get_memory_in_place() {
    let Some(gpu) = gpu() else { return };
    if !gpu.backend.capabilities().growable {
        return;
    }
    let (stream, id) = (gpu.stream(), AllocId(1 << 40));
    gpu.control(Control::Reserve { id, bytes: 16 * MIB }).unwrap();
    let commit = |bytes| gpu.request(Request::Commit { id, bytes });
    assert_eq!(commit(12), Ok(Reply::Committed));
    let words = gpu.upload(stream, &[1, 2, 3]);
    let region = |alloc| Region { alloc, offset: 0 };
    let copy = |from, to| Work::Copy { from, to, bytes: 12 };
    gpu.run(stream, copy(region(words), region(id))).unwrap();
    assert_eq!(commit(16 * MIB), Ok(Reply::Committed));
    assert_eq!(gpu.download(stream, id, 3), [1, 2, 3]);
    let end = Region { alloc: id, offset: 16 * MIB - 12 };
    gpu.run(stream, copy(region(id), end)).unwrap();
    let back = gpu.alloc(stream, 12);
    gpu.run(stream, copy(end, region(back))).unwrap();
    assert_eq!(gpu.download(stream, back, 3), [1, 2, 3]);
    gpu.free(stream, id);
    gpu.sync(stream).unwrap();
}
