//! Allocations, copies and fills.

use std::{sync::Arc, time::Duration};

use cuda_core::protocol::{
    AllocId, Control, Error, HostId, HostRegion, MemoryInfo, Pattern, Region, Reply, Request, Work,
};

use crate::harness::{Gpu, gpu, in_a_child};

fn memory(gpu: &Gpu) -> MemoryInfo {
    match gpu.request(Request::Memory).unwrap() {
        Reply::Memory(info) => info,
        other => panic!("{other:?}"),
    }
}

fn at(alloc: AllocId, offset: u64) -> Region {
    Region { alloc, offset }
}

#[test]
fn upload_then_download_returns_the_same_words() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let words: Vec<u32> = (0..1 << 20).collect();
    let alloc = gpu.upload(stream, &words);
    assert_eq!(gpu.download(stream, alloc, words.len()), words);
    gpu.free(stream, alloc);
    gpu.sync(stream).unwrap();
}

#[test]
fn copies_and_fills_write_their_regions_only() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let (a, b) = (gpu.upload(stream, &[1, 2, 3, 4]), gpu.alloc(stream, 16));
    let fill = |to, pattern, count| gpu.run(stream, Work::Fill { to, pattern, count }).unwrap();
    fill(at(b, 0), Pattern::Byte(0xAB), 16);
    gpu.run(stream, Work::Copy { from: at(a, 4), to: at(b, 8), bytes: 8 }).unwrap();
    fill(at(b, 6), Pattern::Half(0x1234), 1);
    assert_eq!(gpu.download(stream, b, 4), [0xABAB_ABAB, 0x1234_ABAB, 2, 3]);
    fill(at(b, 0), Pattern::Word(7), 4);
    assert_eq!(gpu.download(stream, b, 4), [7; 4]);
}

#[test]
fn empty_copy_is_a_no_op_and_too_large_copy_an_error() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let alloc = gpu.alloc(stream, 16);
    let block = Arc::new(gpu.backend.host_block(8).unwrap());
    let host = HostRegion { block: block.id(), offset: 0 };
    let upload = |from, to, bytes| {
        let work = Work::Upload { from, to, bytes };
        // The block lives until the stream is synchronized.
        gpu.run_after(stream, &[], work, std::slice::from_ref(&block))
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
        gpu.run(stream, Work::Fill { to: at(alloc, 1), pattern: Pattern::Half(1), count: 1 }),
        gpu.run(
            stream,
            Work::Fill { to: at(alloc, 0), pattern: Pattern::Word(1), count: u64::MAX },
        ),
        gpu.try_alloc(stream, alloc, 1),
    ] {
        let is_expected = matches!(
            wrong,
            Err(Error::OutOfRange { .. } | Error::NoSuchObject { .. } | Error::Misuse(_))
        );
        assert!(is_expected, "{wrong:?}");
    }
    let free = Control::Free { id: AllocId(u64::MAX), stream, after: Vec::new() };
    let wrong = gpu.control(free);
    assert!(matches!(wrong, Err(Error::NoSuchObject { .. })), "{wrong:?}");
    gpu.sync(stream).unwrap();
}

/// In a process of its own: the driver keeps the memory that it took before it gave up, and other tests need some.
#[test]
fn out_of_memory_error_has_the_free_bytes_and_later_work_runs() {
    in_a_child("memory::child_out_of_memory");
}

#[test]
#[ignore = "takes all memory: run by `out_of_memory_error_has_the_free_bytes_and_later_work_runs`"]
fn child_out_of_memory() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let bytes = gpu.backend.info().memory * 2;
    match gpu.try_alloc(stream, AllocId(u64::MAX), bytes) {
        Err(Error::OutOfMemory { requested, free, total, .. }) => {
            assert!(requested == bytes && free <= total && total <= bytes, "{free} of {total}");
        }
        other => panic!("{other:?}"),
    }
    let alloc = gpu.upload(stream, &[1, 2, 3]);
    assert_eq!(gpu.download(stream, alloc, 3), [1, 2, 3]);
}

#[test]
fn used_counts_live_allocations() {
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

/// The memory of a backend that is dropped goes back to the device, with no other call.
#[test]
fn memory_of_a_dropped_backend_is_freed() {
    in_a_child("memory::child_dropped_backend");
}

#[test]
#[ignore = "measures the device's free memory: run by `memory_of_a_dropped_backend_is_freed`"]
fn child_dropped_backend() {
    let Some(first) = gpu() else { return };
    let Some(observer) = gpu() else { return };
    let before = memory(&observer).free;
    let bytes = before / 4; // far more than other tests and processes take meanwhile
    let stream = first.stream();
    first.alloc(stream, bytes);
    first.sync(stream).unwrap();
    assert!(memory(&observer).free < before - bytes / 2);
    drop(first);
    // The pool keeps it for the other backend, which gets it without new memory.
    std::thread::sleep(Duration::from_millis(500));
    let stream = observer.stream();
    observer.alloc(stream, bytes);
    observer.sync(stream).unwrap();
    let taken = before.saturating_sub(memory(&observer).free);
    assert!(taken < bytes + bytes / 2, "{taken} bytes taken for {bytes}");
    drop(observer);
    // The last backend of the device returns everything to the system.
    std::thread::sleep(Duration::from_millis(500));
    let free = memory(&gpu().unwrap()).free;
    assert!(free > before - bytes / 2, "{free} bytes free, {before} before");
}

#[test]
fn host_blocks_are_zeroed_and_aligned() {
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
