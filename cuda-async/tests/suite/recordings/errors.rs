//! Operations that cannot be recorded, and replays that cannot run.

use std::{sync::mpsc::channel, time::Duration};

use cuda_async::{
    Device, Error, LaunchConfig,
    cuda_core::{MemoryConflict, Misuse},
    cuda_cpu::CpuProvider,
    graph::record,
    launch,
    memory::{fill, read_back},
    prelude::*,
    race, script, to_pinned, value, with_context,
};

use cuda_core::internals::Recording;

use crate::{
    modules::load_ptx, on_every_device, polling::memory_is_freed, refusals_and_resets::LARGE,
};

on_every_device! {
    waits_are_errors
    error_of_a_step_is_the_error_of_the_recording
    stream_of_an_ended_recording_is_an_error
    recorded_shared_operation_cannot_be_used_outside
    replay_inside_a_recording_is_an_error
    replay_on_another_device_is_an_error
    foreign_submissions_need_a_gpu_of_this_process
    peer_copies_and_recordings_exclude_each_other
}

fn own() -> Device {
    Device::open(&CpuProvider::default(), 0).unwrap()
}

fn waits_are_errors(device: &Device) {
    fn needs_host_data<O: DeviceOp>(op: O, device: &Device) {
        let error = record(op, device).map(drop).unwrap_err();
        assert!(matches!(error, Error::NeedsHostData { .. }), "{}", std::any::type_name::<O>());
    }
    let x = || zeros::<u32>(4);
    needs_host_data(x().then(to_host), device);
    needs_host_data(x().then(read_back), device);
    needs_host_data(x().then(to_pinned), device);
    needs_host_data(x().settled(), device);
    needs_host_data(x().then(to_host).shared(), device);
    needs_host_data(x().settled().map(drop).shared(), device);
    needs_host_data(x().timeout(Duration::from_secs(5)), device);
    needs_host_data(race([x(), x()]), device);
    needs_host_data(x().or_else(|_| zeros(4)), device);
    needs_host_data(zip!(x(), x().then(to_host)), device);
    needs_host_data(x().on(&own()), device);
    needs_host_data(script(async |cx| cx.run(zeros::<u32>(4).then(to_host)).await), device);
    needs_host_data(script(async |_| std::future::pending::<Result<u8, Error>>().await), device);
    let synchronizes = with_context(|cx| {
        value(cx.enqueue(|stream| {
            fill(cuda_core::DeviceBuffer::<u8>::zeroed(stream, 1)?, 1).sync_on(stream).map(drop)
        }))
    });
    let recorded = record(synchronizes, device).unwrap();
    assert!(matches!(recorded.output(), Err(Error::NeedsHostData { .. })));
    // There is nothing to wait for.
    let nothing = record(zeros::<u32>(0).then(to_host), device).unwrap();
    assert!(nothing.output().is_empty());
    assert!(device.synchronize().is_ok());
}

fn error_of_a_step_is_the_error_of_the_recording(device: &Device) {
    let stream = device.new_stream().unwrap();
    let scale = load_ptx(device, include_str!("../../../../kernels/basic.ptx")).unwrap();
    let scale = scale.function("scale").unwrap();
    let mut x = h2d(vec![1.0f32; 4]).sync_on(&stream).unwrap();
    let unknown = Error::Misuse(Misuse::GraphNotLaunched);
    let cause = unknown.clone();
    let fails = fill(&mut x, 2.0)
        .then(move |_| Err::<cuda_async::Op<cuda_async::ops::Value<()>>, _>(cause));
    assert_eq!(record(fails, device).map(drop), Err(unknown));
    let wrong = fill(&mut x, 3.0).then(|x| {
        // SAFETY: refused.
        unsafe { launch(&scale, LaunchConfig::new(1, 4), (x,)) }
    });
    let wrong = record(wrong, device).map(drop);
    assert!(matches!(wrong, Err(Error::Arguments { .. })), "{wrong:?}");
    // Nothing ran, and the buffer can be used as before.
    assert_eq!(to_host(&x).sync_on(&stream).unwrap(), [1.0; 4]);
    let x = fill(x, 4.0).sync_on(&stream).unwrap();
    assert_eq!(to_host(x).sync_on(&stream).unwrap(), [4.0; 4]);
}

fn stream_of_an_ended_recording_is_an_error(device: &Device) {
    let (give, take) = channel();
    let op = zeros::<u32>(1).then_with_context(move |cx, x| {
        let stream = cx.enqueue(|stream| Ok(stream.clone()));
        value(stream.map(|stream| give.send(stream))).map(|_| x)
    });
    let recorded = record(op, device).unwrap();
    let stream = take.recv().unwrap();
    let late = zeros::<u32>(1).sync_on(&stream).map(drop);
    assert!(matches!(late, Err(Error::Misuse(_))), "{late:?}");
    assert!(matches!(stream.query(), Err(Error::NeedsHostData { .. })));
    assert!(Recording::end(&stream).is_err());
    assert!(Recording::end(&device.new_stream().unwrap()).is_err());
    recorded.replay(&device.new_stream().unwrap()).unwrap();
}

fn recorded_shared_operation_cannot_be_used_outside(device: &Device) {
    let stream = device.new_stream().unwrap();
    let table = h2d([1u32, 2]).shared();
    let recorded = record(table.clone(), device).unwrap();
    let outside = table.then(to_host).sync_on(&stream);
    assert!(matches!(outside, Err(Error::Misuse(_))), "{outside:?}");
    recorded.replay(&stream).unwrap();
    assert_eq!(to_host(recorded.output().clone()).sync_on(&stream).unwrap(), [1, 2]);
}

fn replay_inside_a_recording_is_an_error(device: &Device) {
    let inner = record(zeros::<u32>(1), device).unwrap();
    let outer = with_context(|cx| value(cx.enqueue(|stream| inner.replay(stream))));
    let outer = record(outer, device).unwrap();
    assert!(matches!(outer.output(), Err(Error::Misuse(_))), "{outer:?}");
    assert!(outer.recording().is_empty());
}

fn replay_on_another_device_is_an_error(device: &Device) {
    let recorded = record(zeros::<u32>(1), device).unwrap();
    let replayed = recorded.replay(&own().new_stream().unwrap());
    assert!(matches!(replayed, Err(Error::WrongDevice { .. })), "{replayed:?}");
}

/// On a GPU they are captured, and run in every replay.
fn foreign_submissions_need_a_gpu_of_this_process(device: &Device) {
    let foreign = with_context(|cx| {
        value(cx.enqueue(|stream| {
            // SAFETY: enqueues nothing.
            unsafe { stream.submit_foreign(&mut |_| Ok(())) }
        }))
    });
    let (output, recording) = record(foreign, device).unwrap().into_parts();
    if !device.info().address.starts_with("cuda") {
        assert!(matches!(output, Err(Error::Unsupported { .. })), "{output:?}");
        return;
    }
    output.unwrap();
    let stream = device.new_stream().unwrap();
    let error = recording.replay(&stream).unwrap_err();
    assert!(error.to_string().contains("is not prepared"), "{error}");
    crate::modules::prepare(&recording);
    recording.replay(&stream).unwrap();
    stream.synchronize().unwrap();
}

/// A replay could use the destination during the copy.
fn peer_copies_and_recordings_exclude_each_other(device: &Device) {
    let other = own();
    let (stream, there) = (device.new_stream().unwrap(), other.new_stream().unwrap());
    let from = h2d([1u32, 2]).sync_on(&stream).unwrap();
    let into = || zeros::<u32>(2).sync_on(&there).unwrap();
    let inside = Recording::start(device, None).unwrap();
    let copied = from.as_slice().copy_to_peer(&inside, into()).map(drop);
    assert!(matches!(copied, Err(Error::Misuse(_))), "{copied:?}");
    assert!(!copied.unwrap_err().to_string().contains("use another device"));
    let (into, _recording) = record(fill(into(), 1), &other).unwrap().into_parts();
    let copied = from.as_slice().copy_to_peer(&stream, into).map(drop);
    let refused = matches!(
        &copied,
        Err(Error::Misuse(Misuse::Memory { conflict: MemoryConflict::Recorded, .. }))
    );
    assert!(refused, "{copied:?}");
}

#[test]
fn replay_on_a_lost_device_is_an_error_until_the_reset() {
    let device = own();
    let stream = device.new_stream().unwrap();
    let trap = device.load_ptx_blocking(include_str!("../../../../kernels/faults.ptx")).unwrap();
    let trap = trap.function("trap_at").unwrap();
    let recorded = record(h2d([5u32; 8]), &device).unwrap();
    let fault = zeros::<u32>(64).then(|x| {
        // SAFETY: writes x, of 64 elements, or traps.
        unsafe { launch(&trap, LaunchConfig::new(1, 64), (x, 5u32, 64u32)) }
    });
    let fault = fault.sync_on(&stream).map(drop);
    assert!(matches!(fault, Err(Error::Fault(_))), "{fault:?}");
    let other = device.new_stream().unwrap();
    let replayed = recorded.replay(&other);
    assert!(matches!(replayed, Err(Error::DeviceLost { .. })), "{replayed:?}");
    assert!(record(zeros::<u32>(1), &device).is_err());
    device.reset().unwrap();
    recorded.replay(&other).unwrap();
    assert_eq!(to_host(recorded.output()).sync_on(&other).unwrap(), [5; 8]);
}

#[test]
fn replay_that_is_refused_half_way_leaves_the_memory_usable() {
    let device = own();
    let [one, two] = [(); 2].map(|()| device.new_stream().unwrap());
    let large = device.load_ptx_blocking(LARGE).unwrap().function("large").unwrap();
    let config = LaunchConfig::new(1, 1).shared_bytes(device.info().max_shared_bytes);
    let op = zeros::<u32>(4)
        .then(|x| fill(x, 1))
        // SAFETY: the kernel uses nothing of x.
        .then(|x| unsafe { launch(&large, config, (x,)) })
        .then(|x| fill(x, 2));
    let (x, recording) = record(op, &device).unwrap().into_parts();
    for stream in [&one, &two, &one] {
        let replayed = recording.replay(stream);
        assert!(matches!(replayed, Err(Error::InvalidLaunch { .. })), "{replayed:?}");
        assert_eq!(to_host(&x).sync_on(&two).unwrap(), [1; 4]);
    }
    let x = fill(x, 3).sync_on(&two).unwrap();
    assert_eq!(to_host(x).sync_on(&one).unwrap(), [3; 4]);
}

/// The fault of one replay is reported by the stream, and poisons only its own memory.
#[test]
fn fault_in_a_replay_is_reported_on_its_stream() {
    let device = own();
    let stream = device.new_stream().unwrap();
    let trap = device.load_ptx_blocking(include_str!("../../../../kernels/faults.ptx")).unwrap();
    let trap = trap.function("trap_at").unwrap();
    let op = zeros::<u32>(64).then(|x| {
        // SAFETY: writes x, of 64 elements, or traps.
        unsafe { launch(&trap, LaunchConfig::new(1, 64), (x, 5u32, 64u32)) }
    });
    let (x, recording) = record(op, &device).unwrap().into_parts();
    recording.replay(&stream).unwrap();
    let fault = stream.synchronize();
    assert!(matches!(fault, Err(Error::Fault(_))), "{fault:?}");
    device.reset().unwrap();
    let read = to_host(&x).sync_on(&stream);
    assert!(matches!(read, Err(Error::ContentsLost { .. })), "{read:?}");
}

#[test]
fn failed_recording_frees_its_memory() {
    let device = own();
    let before = device.memory().unwrap().used;
    let fails = zeros::<u32>(1000).then(|x| zip!(fill(x, 1), zeros::<u32>(1000).then(to_host)));
    assert_eq!(record(fails, &device).map(drop), Err(Error::needs_host_data("to_host")));
    memory_is_freed(&device, before);
}
