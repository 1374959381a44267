//! Allocations, copies and fills.

use std::sync::Arc;

use cuda_core::{
    AllocId, Command, Error, HostId, HostRegion, MemoryInfo, Pattern, Region, Reply, Request,
};

use crate::harness::{Gpu, gpu, hold_memory, in_a_child};

fn memory(gpu: &Gpu) -> MemoryInfo {
    match gpu.backend.request(Request::Memory).unwrap() {
        Reply::Memory(info) => info,
        other => panic!("{other:?}"),
    }
}

fn at(alloc: AllocId, offset: u64) -> Region {
    Region { alloc, offset }
}

#[test]
fn what_goes_up_comes_down() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let words: Vec<u32> = (0..1 << 20).collect();
    let alloc = gpu.upload(stream, &words);
    assert_eq!(gpu.download(stream, alloc, words.len()), words);
    gpu.free(stream, alloc);
    gpu.sync(stream).unwrap();
}

#[test]
fn copies_and_fills_go_where_they_are_told() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let (a, b) = (gpu.upload(stream, &[1, 2, 3, 4]), gpu.alloc(stream, 16));
    let fill = |to, pattern, count| gpu.run(stream, Command::Fill { to, pattern, count }).unwrap();
    fill(at(b, 0), Pattern::Byte(0xAB), 16);
    gpu.run(stream, Command::Copy { from: at(a, 4), to: at(b, 8), bytes: 8 }).unwrap();
    fill(at(b, 6), Pattern::Half(0x1234), 1);
    assert_eq!(gpu.download(stream, b, 4), [0xABAB_ABAB, 0x1234_ABAB, 2, 3]);
    fill(at(b, 0), Pattern::Word(7), 4);
    assert_eq!(gpu.download(stream, b, 4), [7; 4]);
}

#[test]
fn nothing_is_a_no_op_and_too_much_an_error() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let alloc = gpu.alloc(stream, 16);
    let block = Arc::new(gpu.backend.host_block(8).unwrap());
    let host = HostRegion { block: block.id(), offset: 0 };
    let upload = |from, to, bytes| {
        let command = Command::Upload { from, to, bytes };
        // SAFETY: the block is kept until the stream is synchronised.
        unsafe { gpu.backend.enqueue(stream, command, std::slice::from_ref(&block)) }
    };
    upload(host, at(alloc, 0), 0).unwrap();
    upload(host, at(alloc, 8), 8).unwrap();
    let nowhere = HostRegion { block: HostId(u64::MAX), offset: 0 };
    for wrong in [
        upload(host, at(alloc, 9), 8),
        upload(host, at(alloc, u64::MAX), 8),
        upload(host, at(alloc, 0), 9),
        upload(HostRegion { offset: u64::MAX, ..host }, at(alloc, 0), 2),
        upload(nowhere, at(alloc, 0), 1),
        upload(host, at(AllocId(u64::MAX), 0), 1),
        gpu.run(stream, Command::Fill { to: at(alloc, 1), pattern: Pattern::Half(1), count: 1 }),
        gpu.run(
            stream,
            Command::Fill { to: at(alloc, 0), pattern: Pattern::Word(1), count: u64::MAX },
        ),
        gpu.run(stream, Command::Free { id: AllocId(u64::MAX) }),
        gpu.run(stream, Command::Alloc { id: alloc, bytes: 1 }),
        gpu.run(stream, Command::Alloc { id: AllocId(u64::MAX), bytes: 0 }),
    ] {
        assert!(matches!(wrong, Err(Error::OutOfRange { .. })), "{wrong:?}");
    }
    gpu.sync(stream).unwrap();
}

/// In a process of its own: the driver keeps what it had got before it gave up, and others need some.
#[test]
fn out_of_memory_says_how_much_there_is_and_harms_nothing() {
    in_a_child("memory::child_out_of_memory");
}

#[test]
#[ignore = "takes all memory: run by `out_of_memory_says_how_much_there_is_and_harms_nothing`"]
fn child_out_of_memory() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let bytes = gpu.backend.info().memory * 2;
    match gpu.run(stream, Command::Alloc { id: AllocId(u64::MAX), bytes }) {
        Err(Error::OutOfMemory { requested, free, total }) => {
            assert!(requested == bytes && free <= total && total <= bytes, "{free} of {total}");
        }
        other => panic!("{other:?}"),
    }
    let alloc = gpu.upload(stream, &[1, 2, 3]);
    assert_eq!(gpu.download(stream, alloc, 3), [1, 2, 3]);
}

#[test]
fn used_counts_what_is_live() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    assert_eq!(memory(&gpu).used, 0);
    let (a, b) = (gpu.alloc(stream, 1000), gpu.alloc(stream, 24));
    let info = memory(&gpu);
    assert_eq!(info.used, 1024);
    assert!(info.free <= info.total && info.total <= gpu.backend.info().memory);
    gpu.free(stream, a);
    gpu.free(stream, b);
    assert_eq!(memory(&gpu).used, 0);
}

#[test]
fn what_a_dropped_backend_left_is_freed_by_the_next() {
    let Some(first) = gpu() else { return };
    let _held = hold_memory();
    let before = memory(&first).free;
    let bytes = before / 4; // far more than what other tests and processes take meanwhile
    let stream = first.stream();
    first.alloc(stream, bytes);
    first.sync(stream).unwrap();
    drop(first);
    let Some(second) = gpu() else { return };
    // Freed, it may be the pool's; then the next allocation takes it from there.
    let stream = second.stream();
    second.alloc(stream, bytes);
    second.sync(stream).unwrap();
    let taken = before.saturating_sub(memory(&second).free);
    assert!(taken < bytes + bytes / 2, "{taken} bytes taken for two times {bytes}");
}

#[test]
fn host_blocks_are_zeroed_aligned_and_come_back() {
    let Some(gpu) = gpu() else { return };
    for bytes in [0, 1, 4096, 1 << 22] {
        for _ in 0..3 {
            let mut block = gpu.backend.host_block(bytes).unwrap();
            assert_eq!((block.len(), block.as_ptr() as usize % 64), (bytes, 0));
            assert!(block.bytes().iter().all(|&byte| byte == 0));
            block.bytes_mut().fill(0xFF);
        }
    }
    assert!(matches!(
        gpu.backend.host_block(usize::MAX / 2),
        Err(Error::OutOfHostMemory { .. } | Error::Driver { .. })
    ));
}
