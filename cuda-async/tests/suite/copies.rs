//! Uploads, downloads, pinned memory, new allocations.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
};

use cuda_tensor::{Tensor, TensorOps};

use cuda_async::{
    Device, DeviceBuffer, Error, PinnedBuffer, SchedulingPolicy,
    memory::{COPY_BYTES, HostSource, upload_into},
    policy::SingleStream,
    prelude::*,
    to_host_into, to_pinned,
};
use futures::FutureExt;

use crate::on_every_device;

on_every_device! {
    every_element_type_survives_a_round_trip
    every_host_source_uploads
    empty_buffers_work
    copies_of_many_chunks_are_complete
    downloads_reuse_the_memory_of_a_vector
    source_that_shrinks_is_an_error
    pinned_source_of_another_length_is_an_error
    shared_upload_goes_on_in_a_blocking_run
    pinned_buffers_are_copied_directly
    zeros_are_zero
    device_to_device
}

fn every_element_type_survives_a_round_trip(device: &Device) {
    fn check<T: cuda_async::Element + PartialEq + std::fmt::Debug>(
        device: &Device,
        values: Vec<T>,
    ) {
        let stream = device.new_stream().unwrap();
        assert_eq!(h2d(values.clone()).then(to_host).sync_on(&stream).unwrap(), values);
    }
    check(device, vec![i8::MIN, -1, 0, i8::MAX]);
    check(device, vec![u16::MAX, 1]);
    check(device, vec![i32::MIN, i32::MAX, 7]);
    check(device, vec![u64::MAX, 1 << 40]);
    check(device, vec![f32::MIN_POSITIVE / 2.0, -0.0, f32::INFINITY]);
    check(device, vec![f64::EPSILON, -1e300]);
    check(device, vec![half::f16::from_f32(1.5), half::f16::NEG_INFINITY]);
    check(device, vec![[1u8, 2, 3], [4, 5, 6]]);
}

fn every_host_source_uploads(device: &Device) {
    let stream = device.new_stream().unwrap();
    let values = vec![1, 2, 3];
    assert_eq!(h2d(&values).then(to_host).sync_on(&stream).unwrap(), values);
    assert_eq!(h2d(&values[1..]).then(to_host).sync_on(&stream).unwrap(), values[1..]);
    assert_eq!(h2d([9u8; 5]).then(to_host).sync_on(&stream).unwrap(), [9; 5]);
    assert_eq!(h2d(Arc::new(values.clone())).then(to_host).sync_on(&stream).unwrap(), values);
    let buffer = h2d(Arc::<[i32]>::from(values.clone())).sync_on(&stream).unwrap();
    assert_eq!(to_host(&buffer).sync_on(&stream).unwrap(), values);
    assert_eq!(Arc::new(buffer).to_host_vec().sync_on(&stream).unwrap(), values);
}

fn empty_buffers_work(device: &Device) {
    let stream = device.new_stream().unwrap();
    assert_eq!(h2d(Vec::<f32>::new()).then(to_host).sync_on(&stream).unwrap(), [0.0; 0]);
    assert_eq!(zeros::<u64>(0).then(to_host).sync_on(&stream).unwrap(), [0; 0]);
    assert_eq!(h2d(Vec::<u8>::new()).then(to_pinned).sync_on(&stream).unwrap()[..], [0; 0]);
}

/// Copies more than may be in flight, and a last chunk that is not full: borrowed and owned, blocking and awaited.
fn copies_of_many_chunks_are_complete(device: &Device) {
    let len = (COPY_BYTES * 9 / 8) / 4 + 3;
    let values: Vec<u32> = (0..len as u32).map(|x| x.wrapping_mul(2_654_435_761)).collect();
    let stream = device.new_stream().unwrap();
    assert!(h2d(&values).then(to_host).sync_on(&stream).unwrap() == values);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let policy = SingleStream::from(stream);
    let owned = runtime.block_on(h2d(values.clone()).then(to_host).schedule(&policy)).unwrap();
    let borrowed = runtime.block_on(h2d(&values).then(to_host).schedule(&policy)).unwrap();
    assert!(owned == values && borrowed == values);
    let stream = SchedulingPolicy::place(&policy).unwrap();
    // SAFETY: the output is used on the same stream.
    let detached = unsafe { h2d(values.clone()).async_on(&stream) }.unwrap();
    assert!(to_host(detached).sync_on(&stream).unwrap() == values);
}

fn downloads_reuse_the_memory_of_a_vector(device: &Device) {
    let stream = device.new_stream().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let policy = SingleStream::from(stream.clone());
    // The thread that polls copies the small buffers, and several threads share the large one.
    for len in [0, 1, 1000, 3 << 20] {
        let values: Vec<u32> = (0..len as u32).collect();
        let buffer = h2d(&values).sync_on(&stream).unwrap();
        // Shorter, equal and longer vectors, all with enough capacity.
        for old in [0, len / 2, len, len + 7] {
            let mut memory = Vec::with_capacity(len + 7);
            memory.resize(old, u32::MAX);
            let address = memory.as_ptr();
            let memory = to_host_into(&buffer, memory).sync_on(&stream).unwrap();
            assert!(memory == values && memory.as_ptr() == address);
            let down = to_host_into(&buffer, memory);
            let memory = runtime.block_on(down.schedule(&policy)).unwrap();
            assert!(memory == values && memory.as_ptr() == address);
        }
        let grown = to_host_into(&buffer, vec![7; len / 2]).sync_on(&stream).unwrap();
        assert!(grown == values);
    }
    let memory = Vec::with_capacity(4);
    let address = memory.as_ptr();
    let mask = Tensor::<u8>::arange(0..3).cast::<bool>().to_host_vec_into(memory);
    let mask = mask.sync_on(&stream).unwrap();
    assert_eq!((&mask[..], mask.as_ptr()), (&[false, true, true][..], address));
}

/// A source that has fewer elements each time it is asked.
struct Shrinks(Vec<u8>, AtomicUsize);

impl HostSource for Shrinks {
    type Element = u8;

    fn elements(&self) -> Result<&[u8], Error> {
        let asked = self.1.fetch_add(1, Ordering::Relaxed);
        Ok(&self.0[..self.0.len().saturating_sub(asked)])
    }

    fn into_shared(self) -> Result<Arc<dyn HostSource<Element = u8> + Sync>, Self> {
        Ok(Arc::new(self))
    }
}

fn source_that_shrinks_is_an_error(device: &Device) {
    let (stream, policy) = (device.new_stream().unwrap(), SingleStream::new(device).unwrap());
    let is_error = |end: Result<(), Error>| assert!(matches!(end, Err(Error::OutOfRange { .. })));
    for len in [10, COPY_BYTES] {
        let op = || h2d(Shrinks(vec![7; len], AtomicUsize::new(0))).map(drop);
        is_error(op().sync_on(&stream));
        is_error(futures::executor::block_on(op().schedule(&policy)));
    }
}

/// A source whose pinned memory has another length than its elements.
struct OtherPinned(Vec<u8>, PinnedBuffer<u8>);

impl HostSource for OtherPinned {
    type Element = u8;

    fn elements(&self) -> Result<&[u8], Error> {
        Ok(&self.0)
    }

    fn into_pinned(self) -> Result<PinnedBuffer<u8>, Self> {
        Ok(self.1)
    }
}

fn pinned_source_of_another_length_is_an_error(device: &Device) {
    let stream = device.new_stream().unwrap();
    for len in [3, 9] {
        let source = || OtherPinned(vec![7; 5], device.pinned_uninitialized(len).unwrap());
        let uploaded = h2d(source()).map(drop).sync_on(&stream);
        assert!(matches!(uploaded, Err(Error::OutOfRange { .. })), "{uploaded:?}");
        let target = zeros::<u8>(5).sync_on(&stream).unwrap();
        let uploaded = upload_into(target, source()).map(drop).sync_on(&stream);
        assert!(matches!(uploaded, Err(Error::OutOfRange { .. })), "{uploaded:?}");
    }
}

/// A task begins to pin memory for one chunk of a shared upload. Then another run, which copies in larger pieces, goes
/// on with it.
fn shared_upload_goes_on_in_a_blocking_run(device: &Device) {
    let values: Vec<[u8; 3]> = (0..6u32 << 20).map(|i| [i as u8, (i >> 8) as u8, 7]).collect();
    let policy = SingleStream::new(device).unwrap();
    let stream = SchedulingPolicy::place(&policy).unwrap();
    let shared = h2d(&values).shared();
    let mut task = shared.clone().schedule(&policy);
    let polled = task.poll_unpin(&mut Context::from_waker(Waker::noop()));
    let buffer = shared.sync_on(&stream).unwrap();
    assert!(to_host(buffer).sync_on(&stream).unwrap() == values);
    drop((polled, task));
}

fn pinned_buffers_are_copied_directly(device: &Device) {
    let stream = device.new_stream().unwrap();
    let mut pinned = device.pinned::<f32>(1000).unwrap();
    assert!(pinned.iter().all(|x| *x == 0.0));
    pinned.iter_mut().zip(0u16..).for_each(|(x, i)| *x = f32::from(i));
    let expected = pinned.to_vec();
    let back = h2d(pinned).then(to_pinned).sync_on(&stream).unwrap();
    assert_eq!(back[..], expected);
}

fn zeros_are_zero(device: &Device) {
    let stream = device.new_stream().unwrap();
    for _ in 0..3 {
        let dirty = h2d(vec![u64::MAX; 5000]).sync_on(&stream).unwrap();
        drop(dirty);
        assert_eq!(zeros::<u64>(5000).then(to_host).sync_on(&stream).unwrap(), [0; 5000]);
    }
}

fn device_to_device(device: &Device) {
    let stream = device.new_stream().unwrap();
    let source = h2d(vec![1.5f64; 300]).sync_on(&stream).unwrap();
    let mut copy = DeviceBuffer::<f64>::uninitialized(&stream, 300).unwrap();
    copy.copy_from(&stream, source.as_slice()).unwrap();
    assert_eq!(to_host(copy).sync_on(&stream).unwrap(), [1.5; 300]);
    let mut shorter = DeviceBuffer::<f64>::uninitialized(&stream, 299).unwrap();
    assert!(matches!(shorter.copy_from(&stream, source.as_slice()), Err(Error::OutOfRange { .. })));
}
