//! The five ways to run an operation, and the policies.

use cuda_async::{
    Device, Error, SchedulingPolicy,
    policy::{SingleStream, StreamPoolRoundRobin},
    prelude::*,
    value, with_context,
};

use crate::{kernels::Kernels, on_every_device};

on_every_device! {
    all_ways_to_run_agree
    futures_run_in_any_executor
    schedule_starts_before_it_is_polled
    async_on_submits_and_returns
    async_on_refuses_operations_that_wait
    thousand_tasks_share_four_streams
    round_robin_prefers_the_idle_stream
    sync_on_uses_the_given_stream
}

fn pipeline(kernels: &Kernels) -> impl DeviceOp<Output = Vec<f32>> + 'static {
    let kernels = kernels.clone();
    zip!(h2d(vec![1.0f32; 600]), h2d(vec![2.0f32; 600]))
        .then(move |(a, b)| {
            let scale = kernels.clone();
            kernels.add(a, b).then(move |c| scale.scale(c, 10.0))
        })
        .then(to_host)
}

fn all_ways_to_run_agree(device: &Device) {
    let kernels = Kernels::load(device);
    let expected = vec![30.0; 600];
    let stream = device.new_stream().unwrap();
    let policy = StreamPoolRoundRobin::new(device).unwrap();
    assert_eq!(pipeline(&kernels).sync_on(&stream).unwrap(), expected);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let scheduled = pipeline(&kernels).schedule(&policy);
    assert_eq!(runtime.block_on(scheduled).unwrap(), expected);
}

fn futures_run_in_any_executor(device: &Device) {
    let kernels = Kernels::load(device);
    let policy = SingleStream::new(device).unwrap();
    let future = pipeline(&kernels).schedule(&policy);
    assert_eq!(futures::executor::block_on(future).unwrap(), vec![30.0; 600]);
}

fn schedule_starts_before_it_is_polled(device: &Device) {
    let policy = SingleStream::new(device).unwrap();
    let future = zeros::<u8>(16).schedule(&policy);
    let stream = policy.place().unwrap();
    assert!(stream.submitted() > 0);
    stream.synchronize().unwrap();
    assert_eq!(futures::executor::block_on(future).unwrap().len(), 16);
}

fn async_on_submits_and_returns(device: &Device) {
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let op = h2d(vec![2.0f32; 50]).then(move |x| kernels.scale(x, 4.0));
    // SAFETY: the output is used only by operations of this library.
    let buffer = unsafe { op.async_on(&stream) }.unwrap();
    let other = device.new_stream().unwrap();
    assert_eq!(to_host(buffer).sync_on(&other).unwrap(), [8.0; 50]);
}

fn async_on_refuses_operations_that_wait(device: &Device) {
    let stream = device.new_stream().unwrap();
    // SAFETY: the operation is refused before anything runs.
    let refused = unsafe { h2d(vec![1]).then(to_host).async_on(&stream) };
    assert_eq!(refused, Err(Error::needs_host_data("to_host")));
    assert_eq!(h2d(vec![1]).then(to_host).sync_on(&stream).unwrap(), [1]);
}

fn thousand_tasks_share_four_streams(device: &Device) {
    let kernels = Kernels::load(device);
    let policy = std::sync::Arc::new(StreamPoolRoundRobin::new(device).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..1000u16)
            .map(|task| {
                let (kernels, policy) = (kernels.clone(), policy.clone());
                tokio::spawn(async move {
                    let op = h2d(vec![f32::from(task); 33])
                        .then(move |x| kernels.add_scalar(x, 1.0))
                        .then(to_host);
                    op.schedule(&*policy).await
                })
            })
            .collect();
        for (task, handle) in (0..1000u16).zip(tasks) {
            assert_eq!(handle.await.unwrap().unwrap(), [f32::from(task) + 1.0; 33]);
        }
    });
}

fn round_robin_prefers_the_idle_stream(device: &Device) {
    let policy = StreamPoolRoundRobin::new(device).unwrap();
    let first = policy.place().unwrap();
    assert_eq!(policy.place().unwrap(), first);
    zeros::<u8>(1).sync_on(&first).unwrap();
    assert_eq!(policy.place().unwrap(), first);
    // The completion of this work is not known yet.
    // SAFETY: the output is dropped.
    drop(unsafe { zeros::<u8>(1).async_on(&first) });
    assert_ne!(policy.place().unwrap(), first);
}

fn sync_on_uses_the_given_stream(device: &Device) {
    let stream = device.new_stream().unwrap();
    let seen = with_context(|cx| cx.enqueue(|stream| Ok(stream.id())).map(value))
        .sync_on(&stream)
        .unwrap();
    assert_eq!(seen, stream.id());
}

/// The default device of the process works in any executor.
#[tokio::test]
async fn await_runs_on_the_default_device() {
    assert_eq!(h2d(vec![1u8, 2]).then(to_host).await.unwrap(), [1, 2]);
    let device = cuda_async::default_device().unwrap();
    let gpu = cuda_async::open_blocking("cuda").is_ok();
    assert_eq!(device.info().address, if gpu { "cuda:0" } else { "cpu" });
    assert_eq!(h2d(vec![3u8]).then(to_host).sync().unwrap(), [3]);
}
