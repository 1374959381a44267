//! Buffers whose contents were lost by a fault.

use std::{
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use cuda_async::{
    Device, Error, LaunchConfig, Stream,
    cuda_core::FaultKind,
    launch,
    memory::{BufferSource, copy, fill, upload_into},
    policy::SingleStream,
    prelude::*,
};
use futures::{FutureExt, executor::block_on};

use crate::{
    kernels::Kernels,
    link::LinkProvider,
    polling::{iterations_for, own_devices},
};

const LEN: usize = 64;

/// A buffer that a faulted launch was writing, and one whose upload was skipped.
fn lost(device: &Device, stream: &Stream) -> [cuda_async::DeviceBuffer<u32>; 2] {
    let trap = device.load_ptx_blocking(include_str!("../../../kernels/faults.ptx")).unwrap();
    let trap = trap.function("trap_at").unwrap();
    let (kernels, long) =
        (Kernels::load(device), iterations_for(device, Duration::from_millis(100)));
    let [faulted, skipped] = [1, 2].map(|v| h2d([v; LEN]).sync_on(stream).unwrap());
    // Keeps the fault away until everything is submitted.
    let wait = zeros::<u32>(1).then(|out| kernels.spin(out, long));
    // SAFETY: the output is dropped.
    drop(unsafe { wait.async_on(stream) }.unwrap());
    // SAFETY: writes the buffer, of 64 elements, or traps.
    let op = unsafe { launch(&trap, LaunchConfig::new(1, 64), (faulted, 5u32, 64u32)) };
    // SAFETY: only the library uses the buffer.
    let faulted = unsafe { op.async_on(stream) }.unwrap();
    // SAFETY: only the library uses the buffer.
    let skipped = unsafe { upload_into(skipped, [3; LEN]).async_on(stream) }.unwrap();
    let _ = stream.synchronize();
    [faulted, skipped]
}

fn is_lost_by_a_trap(error: &Error) -> bool {
    let Error::ContentsLost { cause } = error else { return false };
    matches!(&**cause, Error::Fault(fault) if fault.kind == FaultKind::Trap)
}

#[test]
fn lost_contents_give_the_same_error_on_every_stream_until_overwritten() {
    for device in own_devices() {
        let streams = [device.new_stream().unwrap(), device.new_stream().unwrap()];
        let other = h2d([7u32; LEN]).sync_on(&streams[0]).unwrap();
        let [faulted, skipped] = lost(&device, &streams[0]);
        device.reset().unwrap();
        let mut errors = Vec::new();
        for stream in &streams {
            for buffer in [&faulted, &skipped] {
                errors.push(to_host(buffer).sync_on(stream).unwrap_err());
                let policy = SingleStream::from(stream.clone());
                errors.push(block_on(to_host(buffer).schedule(&policy)).unwrap_err());
                // A part is lost too.
                let part = buffer.slice(3..5).unwrap();
                errors.push(to_host(part).sync_on(stream).unwrap_err());
            }
            assert_eq!(to_host(&other).sync_on(stream), Ok(vec![7; LEN]));
        }
        assert!(errors.iter().all(is_lost_by_a_trap), "{errors:#?}");
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:#?}");
        let faulted = upload_into(faulted, [4; LEN]).sync_on(&streams[1]).unwrap();
        let skipped = fill(skipped, 5).sync_on(&streams[0]).unwrap();
        for stream in &streams {
            assert_eq!(to_host(&faulted).sync_on(stream), Ok(vec![4; LEN]));
            assert_eq!(to_host(&skipped).sync_on(stream), Ok(vec![5; LEN]));
        }
    }
}

/// Over a link the client submits behind a fault that it does not know yet, and the far end refuses.
#[test]
fn upload_refused_behind_a_link_loses_contents_with_the_fault() {
    let device = LinkProvider::new(Duration::from_millis(2)).open_device();
    let streams = [device.new_stream().unwrap(), device.new_stream().unwrap()];
    let target = h2d([1u32; LEN]).sync_on(&streams[1]).unwrap();
    drop(lost(&device, &streams[0]));
    // SAFETY: only the library uses the buffer.
    let target = unsafe { upload_into(target, [3; LEN]).async_on(&streams[1]) }.unwrap();
    let _ = streams[1].synchronize();
    device.reset().unwrap();
    let errors =
        [0, 1].map(|stream: usize| to_host(&target).sync_on(&streams[stream]).unwrap_err());
    assert!(errors.iter().all(is_lost_by_a_trap), "{errors:#?}");
    let target = fill(target, 5).sync_on(&streams[0]).unwrap();
    assert_eq!(to_host(&target).sync_on(&streams[1]), Ok(vec![5; LEN]));
}

/// Also where the halves are written one by one.
#[test]
fn writing_both_halves_makes_lost_contents_usable() {
    for device in own_devices() {
        let [one, two] = [device.new_stream().unwrap(), device.new_stream().unwrap()];
        let [mut faulted, _] = lost(&device, &one);
        device.reset().unwrap();
        let (first, second) = faulted.split_at_mut(LEN / 2).unwrap();
        fill(first, 1).sync_on(&one).map(drop).unwrap();
        assert!(is_lost_by_a_trap(&to_host(second.as_slice()).sync_on(&one).unwrap_err()));
        upload_into(second, [2; LEN / 2]).sync_on(&two).map(drop).unwrap();
        let expected = [[1; LEN / 2], [2; LEN / 2]].concat();
        assert_eq!(to_host(&faulted).sync_on(&one), Ok(expected.clone()));
        assert_eq!(to_host(BufferSource::as_slice(&faulted)).sync_on(&two), Ok(expected));
    }
}

/// The work that a task waits for may be another task's.
#[test]
fn wait_for_credit_reports_no_failure_of_other_work() {
    for device in own_devices() {
        let stream = device.new_stream().unwrap();
        let [faulted, _] = lost(&device, &stream);
        device.reset().unwrap();
        let (faulted, kernels) = (Arc::new(faulted), Kernels::load(&device));
        let long = iterations_for(&device, Duration::from_millis(300));
        let take_all_credit = || {
            let wait = zeros::<u32>(1).then(|out| kernels.spin(out, long));
            // SAFETY: the output is dropped.
            drop(unsafe { wait.async_on(&stream) }.unwrap());
            let skipped = || {
                let from = faulted.clone();
                zeros::<u32>(LEN).then(move |to| copy(from, to))
            };
            // SAFETY: the output is dropped.
            while unsafe { skipped().async_on(&stream) }.is_ok() {}
        };
        take_all_credit();
        let op = || h2d([1u32; 4]).then(to_host);
        let mut future = op().schedule(&SingleStream::from(stream.clone()));
        assert!(future.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending());
        // Others take the credit between the wake and the next poll.
        while !stream.credit().is_available() {
            stream.query().unwrap();
        }
        take_all_credit();
        assert_eq!(block_on(future), Ok(vec![1; 4]));
        take_all_credit();
        assert_eq!(op().sync_on(&stream), Ok(vec![1; 4]));
    }
}
