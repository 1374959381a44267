//! Captures and scopes: graphs that are recorded step by step.

use cuda_async::{
    Device, Error, Result,
    graph::{
        CapturePool, CapturedGraph, CudaGraph, begin_capture, begin_capture_with_pool, end_capture,
    },
    memory::{copy, fill},
    prelude::*,
};

use crate::{
    kernels::{Floats, Kernels},
    modules::prepared,
    on_every_device,
    polling::{memory_is_freed, own_devices},
};

on_every_device! {
    captured_steps_run_in_order_at_each_launch
    stream_of_a_capture_is_usable_meanwhile
    failed_step_leaves_the_capture_usable
    capture_survives_a_panic
    scope_gives_its_output
    pool_that_is_sealed_is_an_error
    memory_that_another_recording_uses_is_not_temporary
}

const LEN: usize = 16;

fn captured_steps_run_in_order_at_each_launch(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let mut x = zeros::<f32>(LEN).sync_on(&stream).unwrap();
    let capture = begin_capture(&stream).unwrap();
    capture.record(fill(&mut x, 2.0)).unwrap();
    let x = capture.record(kernels.add_scalar(x, 1.0)).unwrap();
    let y = capture.record(zeros::<f32>(LEN)).unwrap();
    let (x, y) = capture.record(copy(x, y)).unwrap();
    let y = capture.record(kernels.add_scalar(y, 10.0)).unwrap();
    let graph = prepared(end_capture(capture).unwrap());
    assert_eq!((to_host(&x).sync_on(&stream).unwrap(), graph.len()), (vec![0.0; LEN], 5));
    for _ in 0..3 {
        graph.launch().sync_on(&stream).unwrap();
        assert_eq!(to_host(&y).sync_on(&stream).unwrap(), [13.0; LEN]);
    }
}

fn stream_of_a_capture_is_usable_meanwhile(device: &Device) {
    let stream = device.new_stream().unwrap();
    let mut x = zeros::<u32>(LEN).sync_on(&stream).unwrap();
    let capture = begin_capture(&stream).unwrap();
    capture.record(fill(&mut x, 1)).unwrap();
    assert_eq!(h2d([5u32]).then(to_host).sync_on(&stream).unwrap(), [5]);
    fill(&mut x, 3).sync_on(&stream).unwrap();
    assert_eq!(to_host(&x).sync_on(&stream).unwrap(), [3; LEN]);
    // A capture that is dropped has no effect.
    drop(capture);
    stream.synchronize().unwrap();
    assert_eq!(to_host(&x).sync_on(&stream).unwrap(), [3; LEN]);
}

fn failed_step_leaves_the_capture_usable(device: &Device) {
    let stream = device.new_stream().unwrap();
    let mut x = zeros::<u32>(LEN).sync_on(&stream).unwrap();
    let capture = begin_capture(&stream).unwrap();
    capture.record(fill(&mut x, 1)).unwrap();
    let error = capture.record(to_host(&x)).unwrap_err();
    assert!(matches!(error, Error::NeedsHostData { .. }), "{error}");
    let failed: Result<()> = capture.record(value(()).try_map(|()| Err(Error::other("no"))));
    assert_eq!(failed.unwrap_err().to_string(), "no");
    let graph = end_capture(capture).unwrap();
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!(to_host(&x).sync_on(&stream).unwrap(), [1; LEN]);
}

fn capture_survives_a_panic(device: &Device) {
    let stream = device.new_stream().unwrap();
    let panics = std::panic::AssertUnwindSafe(|| {
        let recorded = CudaGraph::scope(&stream, |scope| {
            scope.record(zeros::<u32>(LEN))?;
            scope.record(value(()).map(|()| -> Floats { panic!("inside a capture") }))
        });
        recorded.map(drop)
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    let graph = CudaGraph::scope(&stream, |scope| scope.record(h2d([4u32]))).unwrap();
    assert_eq!(graph.launch().then(to_host).sync_on(&stream).unwrap(), [4]);
}

fn scope_gives_its_output(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let graph = CudaGraph::scope(&stream, |scope| {
        let mut x = scope.record(zeros::<f32>(LEN))?;
        for step in 1..=4 {
            x = scope.record(kernels.add_scalar(x, step as f32))?;
        }
        Ok(x)
    });
    let graph = prepared(graph.unwrap());
    let error = graph.take_output().unwrap_err();
    assert!(error.to_string().contains("launch it first"), "{error}");
    assert_eq!(graph.launch().then(to_host).sync_on(&stream).unwrap(), [10.0; LEN]);
}

fn pool_that_is_sealed_is_an_error(device: &Device) {
    let (stream, pool) = (device.new_stream().unwrap(), CapturePool::new());
    let capture = begin_capture_with_pool(&stream, &pool).unwrap();
    capture.record(zeros::<u32>(LEN)).unwrap();
    pool.seal();
    assert!(pool.is_sealed());
    let inside = capture.record(zeros::<u32>(LEN)).map(drop).unwrap_err();
    let begin = begin_capture_with_pool(&stream, &pool).map(drop).unwrap_err();
    for error in [inside, begin] {
        assert!(error.to_string().contains("it is sealed"), "{error}");
    }
    end_capture(capture).unwrap().launch().sync_on(&stream).unwrap();
    pool.unseal();
    begin_capture_with_pool(&stream, &pool).unwrap().record(zeros::<u32>(LEN)).unwrap();
}

/// Another recording reads the buffer, and no handle of it is left when its own capture ends.
fn memory_that_another_recording_uses_is_not_temporary(device: &Device) {
    let (stream, pool) = (device.new_stream().unwrap(), CapturePool::new());
    let first = begin_capture_with_pool(&stream, &pool).unwrap();
    first.record(zeros::<u32>(LEN)).map(drop).unwrap();
    let _first = end_capture(first).unwrap();
    assert_eq!(pool.idle_bytes(), (LEN * size_of::<u32>()) as u64);
    let writer = begin_capture_with_pool(&stream, &pool).unwrap();
    let y = writer.record(zeros::<u32>(LEN).then(|y| fill(y, 7))).unwrap();
    let reader = begin_capture(&stream).unwrap();
    let z = zeros::<u32>(LEN).sync_on(&stream).unwrap();
    let (y, z) = reader.record(copy(y, z)).unwrap();
    let reader = end_capture(reader).unwrap();
    drop(y);
    let writer = end_capture(writer).unwrap();
    writer.launch().sync_on(&stream).unwrap();
    reader.launch().sync_on(&stream).unwrap();
    assert_eq!(to_host(&z).sync_on(&stream).unwrap(), [7; LEN]);
}

/// Graphs of one pool share the memory of their temporary buffers, and give the right results.
#[test]
fn graphs_of_one_pool_share_temporary_memory() {
    for device in own_devices() {
        let before = device.memory().unwrap().used;
        let (kernels, stream) = (Kernels::load(&device), device.new_stream().unwrap());
        let other = device.new_stream().unwrap();
        let pool = CapturePool::new();
        let capture = |start: f32| -> Result<(CapturedGraph, Floats)> {
            let capture = begin_capture_with_pool(&stream, &pool)?;
            let t = capture.record(zeros::<f32>(LEN).then(|t| fill(t, start)))?;
            let t = capture.record(kernels.add_scalar(t, 1.0))?;
            let y = zeros::<f32>(LEN).sync_on(&stream)?;
            let (_, y) = capture.record(copy(t, y))?;
            Ok((end_capture(capture)?, y))
        };
        let graphs: Vec<_> = (0..8).map(|value| capture(value as f32).unwrap()).collect();
        let buffer = (LEN * size_of::<f32>()) as u64;
        assert_eq!(pool.idle_bytes(), buffer);
        // One temporary buffer for all, and one result for each.
        assert_eq!(device.memory().unwrap().used - before, 9 * buffer);
        for round in 0..3 {
            for (at, (graph, _)) in graphs.iter().enumerate() {
                let stream = if (at + round) % 2 == 0 { &stream } else { &other };
                // SAFETY: only the library uses the results.
                unsafe { graph.launch().async_on(stream) }.unwrap();
            }
            for (at, (_, y)) in graphs.iter().enumerate() {
                assert_eq!(to_host(y).sync_on(&other).unwrap(), [at as f32 + 1.0; LEN]);
            }
        }
        pool.clear();
        drop(graphs);
        memory_is_freed(&device, before);
    }
}
