//! `timeout`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cuda_async::{
    Device, Error, SchedulingPolicy,
    policy::{LeastLoaded, SingleStream},
    prelude::*,
    value,
};
use futures::executor::block_on;

use crate::{
    kernels::{Kernels, spun},
    on_every_device,
    polling::{concurrently, dropped_at_every_poll, iterations_for, memory_is_freed, own_devices},
};

on_every_device! {
    timeout_ends_the_wait
    timeout_does_not_disturb_operations_in_time
    fallback_without_device_work_does_not_wait
    work_before_a_timeout_is_still_waited_for
    timeouts_nest
    timeout_is_refused_by_async_on
    thousand_tasks_with_timeouts_all_end
    shared_work_outlives_a_timeout
}

const LONG: Duration = Duration::from_millis(300);
const SHORT: Duration = Duration::from_millis(10);

fn timed_out<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::TimedOut { after: SHORT }))
}

fn timeout_ends_the_wait(device: &Device) {
    let (kernels, long) = (Kernels::load(device), iterations_for(device, LONG));
    let op = || zeros::<u32>(32).then(|out| kernels.spin(out, long)).timeout(SHORT);
    let stream = device.new_stream().unwrap();
    let start = Instant::now();
    assert!(timed_out(op().then(to_host).sync_on(&stream)));
    assert!(stream.in_flight() > 0);
    assert!(timed_out(block_on(op().schedule(&SingleStream::from(stream.clone())))));
    assert!(stream.in_flight() > 0);
    assert!(start.elapsed() >= 2 * SHORT);
    // The work that was given up is on the stream, and stays in order.
    assert_eq!(zeros::<u8>(3).then(to_host).sync_on(&stream).unwrap(), [0; 3]);
    assert!(stream.in_flight() == 0);
}

fn timeout_does_not_disturb_operations_in_time(device: &Device) {
    let (stream, kernels) = (device.new_stream().unwrap(), Kernels::load(device));
    let minute = Duration::from_secs(60);
    let op = || {
        let branches = zip!(h2d([1.0f32; 40]), h2d([2.0f32; 40]));
        branches.then(|(a, b)| kernels.add(a, b)).timeout(minute).then(to_host).timeout(minute)
    };
    assert_eq!(op().sync_on(&stream).unwrap(), [3.0; 40]);
    assert_eq!(block_on(op().schedule(&SingleStream::from(stream.clone()))).unwrap(), [3.0; 40]);
    let (a, b) = zip!(op(), op().timeout(Duration::MAX)).sync_on(&stream).unwrap();
    assert_eq!(a, b);
    let failed = zeros::<u8>(1 << 50).timeout(minute).sync_on(&stream);
    assert!(matches!(failed, Err(Error::OutOfMemory { .. })));
}

fn fallback_without_device_work_does_not_wait(device: &Device) {
    concurrently(device, || fallback_does_not_wait_once(device));
}

fn fallback_does_not_wait_once(device: &Device) {
    let (kernels, long) = (Kernels::load(device), iterations_for(device, LONG));
    let slow = || zeros::<u32>(32).then(|out| kernels.spin(out, long)).map(|_| "in time");
    let op = || slow().timeout(SHORT).or_else(|_| value("late"));
    let behind = || h2d([1u8; 9]).then(|x| op().map(move |late| (x.len(), late)));
    for waits in 0..4 {
        let stream = device.new_stream().unwrap();
        let policy = SingleStream::from(stream.clone());
        let late = match waits {
            0 => op().sync_on(&stream),
            1 => block_on(op().schedule(&policy)),
            2 => behind().map(|(_, late)| late).sync_on(&stream),
            _ => block_on(behind().map(|(_, late)| late).schedule(&policy)),
        };
        assert_eq!(late, Ok("late"));
        assert!(stream.in_flight() > 0, "{waits}");
    }
}

fn work_before_a_timeout_is_still_waited_for(device: &Device) {
    let (kernels, long) = (Kernels::load(device), iterations_for(device, LONG / 4));
    let stream = device.new_stream().unwrap();
    let before = zeros::<u32>(32).then(|out| kernels.spin(out, long));
    let op = before.then(|out| value(()).timeout(SHORT).map(move |()| out));
    let start = Instant::now();
    block_on(op.schedule(&SingleStream::from(stream.clone()))).unwrap();
    assert!(stream.in_flight() == 0, "{:?}", start.elapsed());
}

fn timeouts_nest(device: &Device) {
    let (kernels, long) = (Kernels::load(device), iterations_for(device, LONG));
    let op = || zeros::<u32>(32).then(|out| kernels.spin(out, long)).map(drop);
    let stream = device.new_stream().unwrap();
    assert!(timed_out(op().timeout(SHORT).timeout(LONG * 9).sync_on(&stream)));
    assert!(timed_out(op().timeout(LONG * 9).timeout(SHORT).sync_on(&stream)));
    let fork = zip!(op(), value(1), op().timeout(LONG * 9)).timeout(SHORT);
    assert!(timed_out(fork.sync_on(&stream)));
}

fn timeout_is_refused_by_async_on(device: &Device) {
    let stream = device.new_stream().unwrap();
    // SAFETY: nothing is submitted.
    let refused = unsafe { value(1u8).timeout(SHORT).async_on(&stream) };
    assert_eq!(refused, Err(Error::needs_host_data("timeout")));
}

fn thousand_tasks_with_timeouts_all_end(device: &Device) {
    let kernels = Kernels::load(device);
    let policy = Arc::new(LeastLoaded::new(device).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..1000u16)
            .map(|task| {
                let (kernels, policy) = (kernels.clone(), policy.clone());
                tokio::spawn(async move {
                    // Every fourth task times out almost at once.
                    let time = if task % 4 == 0 { Duration::from_micros(50) } else { LONG * 200 };
                    let op = h2d(vec![f32::from(task); 33])
                        .then(move |x| kernels.add_scalar(x, 1.0))
                        .then(to_host);
                    op.timeout(time).schedule(&*policy).await
                })
            })
            .collect();
        for (task, handle) in (0..1000u16).zip(tasks) {
            match handle.await.unwrap() {
                Ok(host) => assert_eq!(host, [f32::from(task) + 1.0; 33]),
                Err(error) => assert!(task % 4 == 0, "{task}: {error:?}"),
            }
        }
    });
}

fn shared_work_outlives_a_timeout(device: &Device) {
    let (kernels, long) = (Kernels::load(device), iterations_for(device, LONG / 6));
    let shared = zeros::<u32>(8).then(|out| kernels.spin(out, long)).then(to_host).shared();
    let stream = device.new_stream().unwrap();
    let late = shared.clone().timeout(Duration::ZERO).sync_on(&stream).map(drop);
    assert_eq!(late, Err(Error::TimedOut { after: Duration::ZERO }));
    assert_eq!(*shared.sync_on(&stream).unwrap(), spun(8, long));
}

#[test]
fn memory_outlives_timed_out_work_and_is_freed() {
    for device in own_devices() {
        let kernels = Kernels::load(&device);
        let before = device.memory().unwrap().used;
        let long = iterations_for(&device, LONG);
        let policy = SingleStream::new(&device).unwrap();
        // The kernel runs to its end and writes to memory that is freed after it. Freed earlier, it would fault.
        let late = zeros::<u32>(2000).then(|out| kernels.spin(out, long / 16)).timeout(SHORT);
        timed_out(block_on(late.schedule(&policy)));
        zeros::<u8>(1).then(to_host).sync_on(&policy.place().unwrap()).unwrap();
        memory_is_freed(&device, before);
        dropped_at_every_poll(|| {
            let op = zeros::<u32>(64).then(|out| kernels.spin(out, 3000)).timeout(LONG * 9);
            op.then(to_host).timeout(LONG * 9).schedule(&policy)
        });
        memory_is_freed(&device, before);
    }
}

#[tokio::test]
async fn aborted_task_removes_its_timer() {
    let device = cuda_async::open_blocking("cpu").unwrap();
    let (kernels, long) = (Kernels::load(&device), iterations_for(&device, LONG));
    let policy = SingleStream::new(&device).unwrap();
    let op = zeros::<u32>(32).then(move |out| kernels.spin(out, long)).timeout(LONG * 9);
    let task = tokio::spawn(op.schedule(&policy));
    tokio::time::sleep(SHORT).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
}
