//! Memory of cudarc as buffers, and buffers as memory of cudarc.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cuda_tensor::{Tensor, TensorOps};

use cuda_async::{
    DeviceBuffer, Error, h2d,
    interop::{self, cudarc::driver::DevicePtr},
    memory::{copy, fill},
    prelude::*,
};

use crate::gpu;

#[test]
fn memory_crosses_without_a_copy() {
    let Some((device, context)) = gpu() else { return };
    let theirs = context.new_stream().unwrap();
    let stream = device.new_stream().unwrap();
    let slice = theirs.clone_htod(&[1.0f32, 2.0, 3.0]).unwrap();
    let before = slice.device_ptr(&theirs).0;
    let buffer = interop::from_slice(slice).unwrap();
    let tensor = Tensor::<f32>::from_buffer(buffer, 3).unwrap();
    let doubled = (&tensor).mul_scalar(2.0).to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(doubled, [2.0, 4.0, 6.0]);
    // Memory of cudarc goes back.
    let written = fill(tensor.into_buffer(), 7.0).sync_on(&stream).unwrap();
    let slice = interop::into_slice(written, &theirs).unwrap();
    assert_eq!(theirs.clone_dtoh(&slice).unwrap(), [7.0; 3]);
    assert_eq!(slice.device_ptr(&theirs).0, before);
    let buffer = h2d(vec![5u32; 1 << 20]).sync_on(&stream).unwrap();
    let slice = interop::into_slice(buffer, &theirs).unwrap();
    assert_eq!(theirs.clone_dtoh(&slice).unwrap(), vec![5; 1 << 20]);
}

#[test]
fn work_of_cudarc_on_other_streams_comes_first() {
    let Some((device, context)) = gpu() else { return };
    let stream = device.new_stream().unwrap();
    let (first, second) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    for turn in 0..20u8 {
        let mut slice = first.alloc_zeros::<u8>(8 << 20).unwrap();
        let bytes = vec![turn; 8 << 20];
        second.memcpy_htod(&bytes, &mut slice).unwrap();
        let buffer = interop::from_slice(slice).unwrap();
        let host = value(buffer).then(to_host).sync_on(&stream).unwrap();
        assert!(host.iter().all(|byte| *byte == turn));
        let buffer = fill(zeros::<u8>(8 << 20).sync_on(&stream).unwrap(), turn);
        // SAFETY: the conversion below orders cudarc after the work.
        let buffer = unsafe { buffer.async_on(&stream) }.unwrap();
        let slice = interop::into_slice(buffer, &second).unwrap();
        assert!(second.clone_dtoh(&slice).unwrap().iter().all(|byte| *byte == turn));
    }
}

/// An owner that records its drop.
struct Owner(Arc<(Mutex<bool>, Condvar)>);

impl Drop for Owner {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

#[test]
fn owner_is_dropped_after_the_last_use_also_on_an_idle_device() {
    let Some((device, context)) = gpu() else { return };
    let theirs = context.new_stream().unwrap();
    let stream = device.new_stream().unwrap();
    let slice = theirs.clone_htod(&vec![1u32; 1 << 22]).unwrap();
    let (address, _tracked) = slice.device_ptr(&theirs);
    theirs.synchronize().unwrap();
    let dropped = Arc::<(Mutex<bool>, Condvar)>::default();
    let owner = Box::new(Owner(dropped.clone()));
    // SAFETY: the slice outlives the buffer, and cudarc does not use it meanwhile.
    let buffer =
        unsafe { DeviceBuffer::<u32>::from_raw_parts(&stream, address, 1 << 22, owner) }.unwrap();
    let target = zeros(1 << 22).sync_on(&stream).unwrap();
    let copied = copy(buffer, target).map(|(_buffer, copied)| copied);
    // SAFETY: foreign code does not use the output.
    let copied = unsafe { copied.async_on(&stream) }.unwrap();
    let wait = dropped.0.lock().unwrap();
    let (done, timeout) =
        dropped.1.wait_timeout_while(wait, Duration::from_secs(60), |done| !*done).unwrap();
    assert!(*done && !timeout.timed_out());
    drop(done);
    assert_eq!(value(copied).then(to_host).sync_on(&stream).unwrap(), vec![1; 1 << 22]);
}

#[test]
fn memory_returns_to_both_sides() {
    let Some((device, context)) = gpu() else { return };
    let theirs = context.new_stream().unwrap();
    let stream = device.new_stream().unwrap();
    let turn = |count: usize| {
        for _ in 0..count {
            let slice = theirs.alloc_zeros::<u8>(64 << 20).unwrap();
            let buffer = fill(interop::from_slice(slice).unwrap(), 1).sync_on(&stream).unwrap();
            drop(buffer);
            let buffer = zeros::<u8>(64 << 20).sync_on(&stream).unwrap();
            drop(interop::into_slice(buffer, &theirs).unwrap());
        }
        theirs.synchronize().unwrap();
    };
    // Without returns, this would need 256 GiB.
    turn(2000);
    assert!(device.memory().unwrap().used < 64 << 30);
}

#[test]
fn wrong_parts_are_errors() {
    let Some((device, context)) = gpu() else { return };
    let stream = device.new_stream().unwrap();
    let from = |address, len| {
        let owner = Box::new(AtomicBool::new(false));
        owner.store(true, Ordering::Relaxed);
        // SAFETY: refused.
        unsafe { DeviceBuffer::<u32>::from_raw_parts(&stream, address, len, owner) }.map(drop)
    };
    for (address, len) in [(2, 4), (4, 0), (u64::MAX - 3, 4), (4, usize::MAX)] {
        let error = from(address, len).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    }
    let cpu = cuda_async::open_blocking("cpu").unwrap().new_stream().unwrap();
    let buffer = zeros::<u32>(4).sync_on(&cpu).unwrap();
    let theirs = context.new_stream().unwrap();
    let error = interop::into_slice(buffer, &theirs).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let (half, _rest) = zeros::<u32>(4).sync_on(&stream).unwrap().split_at(2).unwrap();
    let error = interop::into_slice(half, &theirs).unwrap_err();
    assert!(matches!(error, Error::Misuse(_)), "{error}");
}
