//! Host blocks: the number of live ones, their release, their length.

use std::{sync::atomic::Ordering, time::Duration};

use cuda_async::{
    Device, DeviceBuffer, Error, PinnedBuffer, SchedulingPolicy, cuda_cpu::CpuProvider,
    policy::StreamPoolRoundRobin, prelude::*,
};
use futures::executor::block_on;

use crate::{link::LinkProvider, polling::idle_blocks, wrapper::WrapperProvider};

const MIB: usize = 1 << 20;

/// A CPU device, and one behind a link of 2 ms.
fn providers() -> [WrapperProvider; 2] {
    let link = LinkProvider::new(Duration::from_millis(2));
    [WrapperProvider::new(CpuProvider::default()), WrapperProvider::new(link)]
}

fn four_uploads(device: &Device, bytes: usize) -> impl DeviceOp<Output = [usize; 4]> + use<> {
    let upload = || {
        let pinned: PinnedBuffer<u8> = device.pinned_uninitialized(bytes).unwrap();
        h2d(pinned)
    };
    zip!(upload(), upload(), upload(), upload())
        .map(|(a, b, c, d)| [a, b, c, d].map(|buffer: DeviceBuffer<u8>| buffer.len()))
}

#[test]
fn awaited_pinned_uploads_keep_few_host_blocks() {
    for (provider, turns) in providers().into_iter().zip([300, 20]) {
        let watched = provider.watched.clone();
        let device = provider.open_device();
        let policy = StreamPoolRoundRobin::new(&device).unwrap();
        for _ in 0..turns {
            let lengths = block_on(four_uploads(&device, 8 * MIB).schedule(&policy));
            assert_eq!(lengths, Ok([8 * MIB; 4]));
        }
        println!("{} turns, at most {} live host blocks", turns, watched.peak());
        // Those of this turn, and those of the turn before that are not reported yet.
        assert!(watched.peak() <= 8, "{}", watched.peak());
        drop((policy, device));
        println!("all dropped {:?} after the device", watched.all_dropped());
    }
}

#[test]
fn closed_devices_leave_no_host_blocks() {
    for provider in providers() {
        for _ in 0..10 {
            let device = provider.open_device();
            let stream = device.new_stream().unwrap();
            assert_eq!(four_uploads(&device, MIB).sync_on(&stream), Ok([MIB; 4]));
        }
        println!("all dropped {:?} after the last device", provider.watched.all_dropped());
    }
}

#[test]
fn uploads_that_are_not_awaited_leave_no_host_blocks() {
    for provider in providers() {
        let device = provider.open_device();
        let policy = StreamPoolRoundRobin::with_streams(&device, 4).unwrap();
        for _ in 0..50 {
            let stream = policy.place().unwrap();
            // SAFETY: the output has no device memory.
            unsafe { four_uploads(&device, MIB).async_on(&stream) }.unwrap();
        }
        println!("{} live host blocks before the drop", provider.watched.live());
        drop((policy, device));
        println!("all dropped {:?} after the device", provider.watched.all_dropped());
    }
}

/// Also those whose operation was dropped while its kernel or its download was in flight.
#[test]
fn downloads_that_are_dropped_leave_no_host_blocks() {
    for provider in providers() {
        let device = provider.open_device();
        let policy = StreamPoolRoundRobin::with_streams(&device, 4).unwrap();
        idle_blocks(&device, 60, MIB);
        for _ in 0..20 {
            drop(zeros::<u8>(3 * MIB).then(to_host).schedule(&policy));
        }
        assert!(provider.watched.live() > 0);
        drop((policy, device));
        println!("all dropped {:?} after the device", provider.watched.all_dropped());
    }
}

/// Nothing polls the operation again after `async_on`.
#[test]
fn async_on_pins_host_memory_at_once() {
    let device = LinkProvider::new(Duration::from_millis(2)).open_device();
    let stream = device.new_stream().unwrap();
    let plain = h2d(vec![7u8; MIB]);
    // More than the blocks that a copy has in flight while it can wait.
    let shared = h2d(vec![9u8; 20 * MIB]).shared();
    // SAFETY: the outputs are used only by operations of this library.
    let plain = unsafe { plain.async_on(&stream) }.unwrap();
    // SAFETY: the outputs are used only by operations of this library.
    let first = unsafe { shared.clone().async_on(&stream) }.unwrap();
    assert_eq!(to_host(plain).sync_on(&stream), Ok(vec![7; MIB]));
    assert_eq!(first.len(), 20 * MIB);
    let read = shared.then(to_host).sync_on(&stream);
    assert!(read == Ok(vec![9; 20 * MIB]));
}

/// An awaited operation yields while host memory is pinned.
#[test]
fn awaited_copies_pin_host_memory_on_the_helper_thread() {
    let device = LinkProvider::new(Duration::from_millis(2)).open_device();
    let policy = StreamPoolRoundRobin::new(&device).unwrap();
    let copies = (1..9u8).map(|i| h2d(vec![i; MIB]).then(to_host).schedule(&policy));
    let copied = block_on(futures::future::join_all(copies.collect::<Vec<_>>()));
    for (i, values) in (1..9u8).zip(copied) {
        assert_eq!(values, Ok(vec![i; MIB]));
    }
}

#[test]
fn host_block_that_is_too_short_is_an_error() {
    for provider in providers() {
        let device = provider.open_device();
        let stream = device.new_stream().unwrap();
        provider.watched.short_blocks.store(true, Ordering::SeqCst);
        let refused = |error: Error| matches!(error, Error::Host { .. });
        assert!(device.pinned::<u8>(4097).is_err_and(refused));
        assert!(device.pinned_uninitialized::<u64>(513).is_err_and(refused));
        assert!(h2d(vec![1u8; 8192]).sync_on(&stream).is_err_and(refused));
        let policy = StreamPoolRoundRobin::new(&device).unwrap();
        let x = zeros::<u8>(8192).sync_on(&stream).unwrap();
        assert!(block_on(to_host(&x).schedule(&policy)).is_err_and(refused));
        // Blocks that are long enough still work, also those that come from the pool again.
        for _ in 0..2 {
            assert_eq!(h2d(vec![3u8; 4096]).then(to_host).sync_on(&stream), Ok(vec![3; 4096]));
        }
        provider.watched.short_blocks.store(false, Ordering::SeqCst);
        assert_eq!(to_host(&x).sync_on(&stream), Ok(vec![0; 8192]));
    }
}
