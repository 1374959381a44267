//! Buffers that grow in place.

use cuda_async::{
    Device, Error, LaunchConfig,
    cuda_core::{Limit, Quantity},
    cuda_cpu::{CpuOptions, CpuProvider},
    graph::record,
    launch,
    memory::{GrowableBuffer, fill},
    prelude::*,
};

use crate::{modules::load_ptx, on_every_device};

on_every_device! {
    elements_keep_their_values_and_addresses
    memory_is_charged_as_it_grows_and_freed
    kernels_and_graphs_use_slices
    wrong_lengths_are_errors
    refused_reservation_leaves_the_device_usable
}

/// A buffer, unless the device has none of this kind and says so.
fn growable<T: cuda_async::Element>(device: &Device, max_len: usize) -> Option<GrowableBuffer<T>> {
    match GrowableBuffer::new(device, max_len) {
        Ok(buffer) => Some(buffer),
        Err(error) => {
            assert!(!device.capabilities().growable, "{error}");
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            None
        }
    }
}

fn elements_keep_their_values_and_addresses(device: &Device) {
    let Some(mut list) = growable::<u32>(device, 8 << 20) else { return };
    let (stream, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    assert!(list.is_empty() && list.max_len() == 8 << 20 && list.device() == device);
    let place = list.as_slice().region();
    let mut expected = Vec::<u32>::new();
    // Within one unit of physical memory, at its end, and beyond it.
    for len in [1, 1000, 1 << 19, (1 << 19) + 1, 3 << 20, 8 << 20] {
        list.grow(len).unwrap();
        let new = len - expected.len();
        let value = len as u32;
        let part = list.slice_mut(expected.len()..).unwrap();
        fill(part, value).sync_on(&stream).unwrap();
        expected.extend(std::iter::repeat_n(value, new));
        assert_eq!(list.as_slice().region(), place);
    }
    // Shrinks never.
    list.grow(5).unwrap();
    assert_eq!(list.len(), 8 << 20);
    assert!(to_host(list.as_slice()).sync_on(&other).unwrap() == expected);
}

/// On a CPU device, whose memory no other test uses.
#[test]
fn growth_beyond_the_memory_is_refused_and_changes_nothing() {
    let mut options = CpuOptions::default();
    options.memory = Some(1 << 20);
    let device = Device::open(&CpuProvider::new(options), 0).unwrap();
    let stream = device.new_stream().unwrap();
    // Addresses are not memory.
    let mut list = GrowableBuffer::<u8>::new(&device, 4 << 20).unwrap();
    assert_eq!(device.memory().unwrap().used, 0);
    list.grow(100).unwrap();
    list.as_slice_mut().fill(&stream, 7).unwrap();
    let held = zeros::<u8>(800 << 10).sync_on(&stream).unwrap();
    let refused = list.grow(300 << 10);
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
    assert_eq!((list.len(), device.memory().unwrap().used), (100, 100 + (800 << 10)));
    assert_eq!(to_host(list.as_slice()).sync_on(&stream).unwrap(), [7; 100]);
    // Memory of a dropped buffer is found.
    drop(held);
    list.grow(900 << 10).unwrap();
    assert_eq!(to_host(list.slice(..100).unwrap()).sync_on(&stream).unwrap(), [7; 100]);
    drop(list);
    drop(zeros::<u8>(1 << 20).sync_on(&stream).unwrap());
    assert_eq!(device.memory().unwrap().used, 0);
}

/// A reservation that the device refuses leaves nothing behind.
fn refused_reservation_leaves_the_device_usable(device: &Device) {
    if growable::<u8>(device, 1).is_none() {
        return;
    }
    let stream = device.new_stream().unwrap();
    for max_len in [usize::MAX, usize::MAX - (1 << 40), 1 << 63, 1 << 62, 1 << 62, 1 << 62, 1 << 62]
    {
        let error = GrowableBuffer::<u8>::new(device, max_len).unwrap_err();
        let text = error.to_string();
        assert!(
            !matches!(error, Error::OutOfMemory { free, total, .. } if free == total),
            "{text}"
        );
    }
    assert_eq!(h2d([5u8]).then(to_host).sync_on(&stream).unwrap(), [5]);
    let mut list = growable::<u8>(device, 1 << 20).unwrap();
    list.grow(1 << 20).unwrap();
}

fn memory_is_charged_as_it_grows_and_freed(device: &Device) {
    let Some(mut list) = growable::<u64>(device, 1 << 30) else { return };
    let stream = device.new_stream().unwrap();
    for _ in 0..20 {
        list.grow(1000).unwrap();
        fill(list.as_slice_mut(), 0).sync_on(&stream).unwrap();
        // Dropped while work uses it.
        list.as_slice_mut().fill(&stream, 0).unwrap();
        list = growable(device, 1 << 30).unwrap();
    }
}

fn kernels_and_graphs_use_slices(device: &Device) {
    let Some(mut list) = growable::<f32>(device, 1 << 20) else { return };
    let stream = device.new_stream().unwrap();
    let basic = include_str!("../../../kernels/basic.ptx");
    let scale = load_ptx(device, basic).unwrap().function("scale").unwrap();
    list.grow(64).unwrap();
    fill(list.as_slice_mut(), 1.0).sync_on(&stream).unwrap();
    // SAFETY: scale(x, factor, n) reads and writes x below n.
    let op = unsafe {
        launch(&scale, LaunchConfig::for_num_elems(64), (list.as_slice_mut(), 2f32, 64u32))
    };
    op.sync_on(&stream).unwrap();
    let recorded = record(fill(list.slice_mut(..32).unwrap(), 9.0), device).unwrap();
    let (_, recording) = recorded.into_parts();
    list.grow(1 << 20).unwrap();
    recording.replay(&stream).unwrap();
    let host = to_host(list.slice(..64).unwrap()).sync_on(&stream).unwrap();
    assert_eq!(host, [[9f32; 32], [2f32; 32]].concat());
}

fn wrong_lengths_are_errors(device: &Device) {
    let Some(mut list) = growable::<u16>(device, 100) else { return };
    let beyond = list.grow(101).unwrap_err();
    assert!(
        matches!(
            beyond,
            Error::OutOfRange {
                quantity: Quantity::Elements,
                given: 101,
                limit: Limit::AtMost(100),
                ..
            }
        ),
        "{beyond}"
    );
    assert!(list.slice(..1).is_err() && list.slice_mut(0..1).is_err());
    list.grow(100).unwrap();
    assert_eq!((list.len(), list.slice(..100).unwrap().len()), (100, 100));
    let error = GrowableBuffer::<u64>::new(device, usize::MAX).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    let mut empty = growable::<u8>(device, 0).unwrap();
    assert!(empty.grow(0).is_ok() && empty.grow(1).is_err());
}
