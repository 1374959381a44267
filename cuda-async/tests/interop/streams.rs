//! Operations on streams of cudarc, and kernels of cudarc in operations.

use std::sync::Arc;

use cuda_async::{
    DeviceBuffer, Error, LaunchConfig,
    graph::GraphExt,
    h2d,
    interop::{
        self,
        cudarc::{
            driver::{CudaModule, CudaStream, PushKernelArg, sys::CUstreamCaptureMode},
            nvrtc::Ptx,
        },
    },
    join_all,
    prelude::*,
};

use crate::gpu;

const SAXPY: &str = include_str!("../../../kernels/saxpy.ptx");

/// A module that cudarc has loaded.
fn module(stream: &Arc<CudaStream>) -> Arc<CudaModule> {
    let context = stream.context();
    context.load_module(Ptx::from_src(SAXPY)).unwrap()
}

#[test]
fn operations_run_in_order_with_the_commands_of_cudarc() {
    let Some((_, context)) = gpu() else { return };
    let theirs = context.new_stream().unwrap();
    // SAFETY: nothing captures the stream.
    let stream = unsafe { interop::stream(&theirs) }.unwrap();
    let saxpy = module(&theirs).load_function("saxpy").unwrap();
    let n = 1 << 20;
    // cudarc, an operation, cudarc, an operation: each reads what the one before has written.
    for turn in 0..20 {
        let x = theirs.clone_htod(&vec![1.0f32; n]).unwrap();
        let mut y = theirs.alloc_zeros::<f32>(n).unwrap();
        let mut launch = theirs.launch_builder(&saxpy);
        let (a, n_) = (turn as f32, n as u32);
        launch.arg(&x).arg(&mut y).arg(&a).arg(&n_);
        let config = interop::cudarc::driver::LaunchConfig::for_num_elems(n_);
        // SAFETY: the arguments of the kernel.
        unsafe { launch.launch(config) }.unwrap();
        let (x, y) = (interop::from_slice(x).unwrap(), interop::from_slice(y).unwrap());
        // SAFETY: the arguments of the kernel.
        let op =
            unsafe { interop::launch(&saxpy, LaunchConfig::for_num_elems(n), (x, y, 10.0f32, n_)) };
        let (x, y) = op.sync_on(&stream).unwrap();
        let y = interop::into_slice(y, &theirs).unwrap();
        assert!(
            theirs.clone_dtoh(&y).unwrap().iter().all(|element| *element == turn as f32 + 10.0)
        );
        drop(x);
    }
}

#[test]
fn many_operations_share_a_stream_of_cudarc() {
    let Some((_, context)) = gpu() else { return };
    let theirs = context.new_stream().unwrap();
    // SAFETY: nothing captures the stream.
    let stream = unsafe { interop::stream(&theirs) }.unwrap();
    let lists = (0..50u32).map(|at| h2d(vec![at; 1000]).then(to_host));
    for (at, list) in join_all(lists).sync_on(&stream).unwrap().into_iter().enumerate() {
        assert_eq!(list, [at as u32; 1000]);
    }
    drop(stream);
    // cudarc's stream outlives the other handle.
    assert_eq!(theirs.clone_dtoh(&theirs.clone_htod(&[7u8]).unwrap()).unwrap(), [7]);
}

#[test]
fn default_stream_of_cudarc_works_and_the_one_of_a_thread_is_refused() {
    let Some((_, context)) = gpu() else { return };
    // SAFETY: nothing captures the stream.
    let stream = unsafe { interop::stream(&context.default_stream()) }.unwrap();
    assert_eq!(h2d(vec![1u64, 2]).then(to_host).sync_on(&stream).unwrap(), [1, 2]);
    // SAFETY: nothing captures the stream.
    let refused = unsafe { interop::stream(&context.per_thread_stream()) };
    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
}

#[test]
fn stream_that_is_captured_is_refused() {
    let Some((_, context)) = gpu() else { return };
    let theirs = context.new_stream().unwrap();
    theirs.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    // SAFETY: refused, which is tested.
    let refused = unsafe { interop::stream(&theirs) };
    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
    let flags = interop::cudarc::driver::sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    _ = theirs.end_capture(flags);
}

#[test]
fn kernels_of_cudarc_are_ordered_and_recorded() {
    let Some((device, context)) = gpu() else { return };
    let saxpy = module(&context.default_stream()).load_function("saxpy").unwrap();
    let stream = device.new_stream().unwrap();
    let n = 1000;
    let x: Arc<DeviceBuffer<f32>> = Arc::new(h2d(vec![1.0f32; n]).sync_on(&stream).unwrap());
    let add = |y: DeviceBuffer<f32>, a: f32| {
        // SAFETY: the arguments of the kernel.
        unsafe {
            interop::launch(&saxpy, LaunchConfig::for_num_elems(n), (x.clone(), y, a, n as u32))
        }
        .map(|(_, y)| y)
    };
    let other = device.new_stream().unwrap();
    let mut y = zeros(n).sync_on(&stream).unwrap();
    for turn in 0..20 {
        let on = if turn % 2 == 0 { &stream } else { &other };
        // SAFETY: nothing else uses the output.
        y = unsafe { add(y, 1.0).async_on(on) }.unwrap();
    }
    assert_eq!(value(y).then(to_host).sync_on(&stream).unwrap(), [20.0; 1000]);
    let recorded = zeros(n).then(|y| add(y, 2.0)).then(|y| add(y, 3.0));
    let graph = recorded.graph_on(&stream).unwrap();
    for _ in 0..3 {
        let output = graph.launch().then(to_host).sync_on(&stream).unwrap();
        assert_eq!(output, [5.0; 1000]);
    }
    // The module is unloaded after the work that uses it.
    drop((graph, saxpy));
}
