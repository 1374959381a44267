//! Graphs: launches agree with direct runs, on any stream, and a graph owns what it uses.

use std::{ops::ControlFlow, sync::Arc};

use cuda_async::{
    Device, Error, LaunchConfig,
    cuda_core::FaultKind,
    graph::CudaGraph,
    iterate, join_all, launch,
    memory::{fill, upload_into},
    policy::SingleStream,
    prelude::*,
};
use futures::executor::block_on;

use crate::{
    devices,
    kernels::{Floats, Kernels},
    modules::prepared,
    on_every_device,
    polling::{memory_is_freed, own_devices},
};

on_every_device! {
    graph_is_launched_again_and_again
    launches_compose_with_other_operations
    launches_on_several_streams_are_ordered
    launches_without_waits_submit_the_nodes
    updates_come_before_later_launches
    output_exists_after_the_first_launch
    graph_owns_what_it_uses
    graph_that_needs_host_data_is_an_error
    graph_of_another_device_is_an_error
    empty_graph_runs
}

const LEN: usize = 64;

/// `x = 1; x += 1` some times.
fn counting(kernels: &Kernels, steps: usize, device: &Device) -> CudaGraph<Floats> {
    let stream = device.new_stream().unwrap();
    let mut op = zeros::<f32>(LEN).then(|x| fill(x, 1.0)).boxed();
    for _ in 0..steps {
        let kernels = kernels.clone();
        op = op.then(move |x| kernels.add_scalar(x, 1.0)).boxed();
    }
    prepared(op.graph_on(&stream).unwrap())
}

fn graph_is_launched_again_and_again(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let graph = counting(&kernels, 5, device);
    assert_eq!((graph.len(), graph.is_empty(), graph.device()), (7, false, device));
    for _ in 0..4 {
        let x = graph.launch().then(to_host).sync_on(&stream).unwrap();
        assert_eq!(x, [6.0; LEN]);
    }
    graph.upload().unwrap();
    let (x, time) = graph.launch().timed().sync_on(&stream).unwrap();
    assert_eq!(to_host(x).sync_on(&stream).unwrap(), [6.0; LEN]);
    assert!(!time.is_zero());
}

fn launches_compose_with_other_operations(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let graphs: Vec<_> = (1..4).map(|steps| counting(&kernels, steps, device)).collect();
    // At the same time, in an executor, and inside other operations.
    let all = join_all(graphs.iter().map(|graph| graph.launch().then(to_host)));
    let sums = all.map(|all| all.iter().map(|x| x[0]).collect::<Vec<_>>());
    assert_eq!(sums.sync_on(&stream).unwrap(), [2.0, 3.0, 4.0]);
    let policy = SingleStream::from(stream.clone());
    let both =
        zip!(graphs[0].launch(), graphs[2].launch()).then(|(a, b)| kernels.add(a, b)).then(to_host);
    assert_eq!(block_on(both.schedule(&policy)).unwrap(), [6.0; LEN]);
}

fn launches_on_several_streams_are_ordered(device: &Device) {
    let kernels = Kernels::load(device);
    let streams: Vec<_> = (0..4).map(|_| device.new_stream().unwrap()).collect();
    // Each launch goes on from the result of the last one.
    let x = zeros::<f32>(LEN).sync_on(&streams[0]).unwrap();
    let graph = prepared(kernels.add_scalar(x, 1.0).graph_on(&streams[0]).unwrap());
    for round in 0..40 {
        let launch = graph.launch();
        // SAFETY: only the library uses the output.
        unsafe { launch.async_on(&streams[round % 4]) }.unwrap();
        if round == 3 {
            graph.upload().unwrap();
        }
    }
    let x = graph.take_output().unwrap();
    assert_eq!(to_host(x).sync_on(&streams[1]).unwrap(), [40.0; LEN]);
}

fn launches_without_waits_submit_the_nodes(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let graph = counting(&kernels, 3, device);
    // SAFETY: only the library uses the output.
    let x = unsafe { graph.launch().async_on(&stream) }.unwrap();
    assert_eq!(to_host(x).sync_on(&stream).unwrap(), [4.0; LEN]);
}

fn updates_come_before_later_launches(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let input = Arc::new(h2d(vec![1.0f32; LEN]).sync_on(&stream).unwrap());
    let graph = prepared(kernels.add(input.clone(), input.clone()).graph_on(&stream).unwrap());
    assert_eq!(graph.launch().then(to_host).sync_on(&stream).unwrap(), [2.0; LEN]);
    // The graph holds the input too, so an update writes a buffer of its own.
    let other = graph.update(h2d(vec![3.0f32; LEN])).unwrap();
    assert_eq!(to_host(other).sync_on(&stream).unwrap(), [3.0; LEN]);
    assert_eq!(graph.launch().then(to_host).sync_on(&stream).unwrap(), [2.0; LEN]);
}

fn output_exists_after_the_first_launch(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let graph = counting(&kernels, 1, device);
    let error = graph.take_output().map(drop).unwrap_err();
    assert!(error.to_string().contains("launch it first"), "{error}");
    graph.launch().sync_on(&stream).unwrap();
    let x = graph.take_output().unwrap();
    drop(graph);
    assert_eq!(to_host(x).sync_on(&stream).unwrap(), [2.0; LEN]);
}

/// The module, the input and the streams are gone.
fn graph_owns_what_it_uses(device: &Device) {
    let graph = {
        let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
        let input = h2d(vec![2.0f32; LEN]).sync_on(&stream).unwrap();
        let sum = zip!(h2d(vec![1.0f32; LEN]), value(input));
        prepared(sum.then(move |(a, b)| kernels.add(a, b)).graph_on(&stream).unwrap())
    };
    device.synchronize().unwrap();
    let stream = device.new_stream().unwrap();
    let others: Vec<_> =
        (0..10).map(|_| h2d(vec![7.0f32; LEN]).sync_on(&stream).unwrap()).collect();
    for round in 0..3 {
        let launch = graph.launch();
        if round == 2 {
            drop(graph);
            assert_eq!(launch.then(to_host).sync_on(&stream).unwrap(), [3.0; LEN]);
            break;
        }
        assert_eq!(launch.then(to_host).sync_on(&stream).unwrap(), [3.0; LEN]);
    }
    for other in others {
        assert_eq!(to_host(other).sync_on(&stream).unwrap(), [7.0; LEN]);
    }
}

fn graph_that_needs_host_data_is_an_error(device: &Device) {
    let stream = device.new_stream().unwrap();
    let error = zeros::<u32>(4).then(to_host).graph_on(&stream).map(drop);
    assert_eq!(error, Err(Error::needs_host_data("to_host")));
    assert_eq!(h2d([1u32]).then(to_host).sync_on(&stream).unwrap(), [1]);
}

fn graph_of_another_device_is_an_error(device: &Device) {
    let [other, _] = own_devices();
    let graph = counting(&Kernels::load(device), 1, device);
    let error = graph.launch().sync_on(&other.new_stream().unwrap()).map(drop).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
}

fn empty_graph_runs(device: &Device) {
    let stream = device.new_stream().unwrap();
    let graph = prepared(value(7).graph_on(&stream).unwrap());
    assert!(graph.is_empty());
    assert_eq!(*graph.launch().sync_on(&stream).unwrap(), 7);
}

/// Launches retain what they use until they are complete, and nothing longer. `GRAPH_LAUNCHES=100000` makes more of
/// them, also on a GPU, which no other test may use meanwhile.
#[test]
fn memory_is_flat_over_many_launches() {
    let longer = std::env::var("GRAPH_LAUNCHES").ok().and_then(|count| count.parse().ok());
    let gpu = longer.and_then(|_| devices::cuda());
    // The second one is behind a slow link.
    let own = own_devices().into_iter().take(if longer.is_some() { 1 } else { 2 });
    for device in own.chain(gpu) {
        let (kernels, stream) = (Kernels::load(&device), device.new_stream().unwrap());
        let before = device.memory().unwrap().used;
        let input = vec![1.0f32; LEN];
        let graph = h2d(input).then(move |x| kernels.add_scalar(x, 1.0)).graph_on(&stream).unwrap();
        graph.upload().unwrap();
        let used = device.memory().unwrap().used;
        let launch_times = |times: usize| {
            (0..times).for_each(|_| _ = graph.launch().sync_on(&stream).unwrap());
            resident_bytes()
        };
        let first = launch_times(longer.unwrap_or(2000) / 10);
        let last = launch_times(longer.unwrap_or(2000) * 9 / 10);
        assert_eq!(device.memory().unwrap().used, used);
        // Other tests change it too, if there are any.
        if let (Some(_), Some(first), Some(last)) = (longer, first, last) {
            assert!(last <= first + (4 << 20), "{first} bytes of host memory became {last}");
        }
        // In flight when the last handle is dropped.
        for _ in 0..100 {
            // SAFETY: the output is dropped.
            drop(unsafe { graph.launch().async_on(&stream) }.unwrap());
        }
        drop(graph);
        memory_is_freed(&device, before);
    }
}

/// The host memory of this process, where the system tells.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split(' ').nth(1)?.parse::<u64>().ok()? * 4096)
}

/// A node that faults fails its launch. Nodes behind it are skipped, and other nodes of the graph have run.
#[test]
fn fault_of_a_node_fails_the_launch() {
    for device in own_devices() {
        let (kernels, stream) = (Kernels::load(&device), device.new_stream().unwrap());
        let trap = device.load_ptx_blocking(include_str!("../../../kernels/faults.ptx")).unwrap();
        let trap = trap.function("trap_at").unwrap();
        let zeroed = zeros::<u32>(LEN).then(move |x| {
            // SAFETY: writes the buffer, of 64 elements, or traps.
            unsafe { launch(&trap, LaunchConfig::new(1, 64), (x, 5u32, 64u32)) }
        });
        let first = zeros::<f32>(LEN).then(|x| kernels.add_scalar(x, 1.0));
        let graph = first
            .then(|first| zeroed.map(move |x| (first, x)))
            .then(|(first, x)| kernels.add_scalar(first, 1.0).map(move |first| (first, x)))
            .graph_on(&stream)
            .unwrap();
        graph.upload().unwrap();
        let error = graph.launch().sync_on(&stream).map(drop).unwrap_err();
        let Error::Fault(fault) = &error else { panic!("{error}") };
        assert_eq!(fault.kind, FaultKind::Trap);
        device.reset().unwrap();
        let output = graph.take_output().unwrap();
        let lost = to_host(&output.1).sync_on(&stream).unwrap_err();
        assert!(matches!(lost, Error::ContentsLost { .. }), "{lost}");
    }
}

/// An upload inside a graph comes from memory that the graph owns, also when the driver has to split it.
#[test]
fn uploads_of_a_graph_are_its_own() {
    for device in own_devices() {
        let stream = device.new_stream().unwrap();
        let mut bytes: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
        let expected = bytes.clone();
        let x = zeros::<u8>(bytes.len()).sync_on(&stream).unwrap();
        let graph = upload_into(x, bytes.clone()).graph_on(&stream).unwrap();
        bytes.fill(0);
        for _ in 0..2 {
            assert!(graph.launch().then(to_host).sync_on(&stream).unwrap() == expected);
        }
    }
}

/// One operation launches more graphs than a stream may have in flight.
#[test]
fn launches_wait_for_credit() {
    for device in own_devices() {
        let (kernels, stream) = (Kernels::load(&device), device.new_stream().unwrap());
        let x = zeros::<f32>(LEN).sync_on(&stream).unwrap();
        let graph = kernels.add_scalar(x, 1.0).graph_on(&stream).unwrap();
        graph.upload().unwrap();
        let many = || {
            let graph = graph.clone();
            iterate(0, move |launched| {
                graph.launch().map(move |x| match launched {
                    1999 => ControlFlow::Break(x),
                    _ => ControlFlow::Continue(launched + 1),
                })
            })
        };
        assert_eq!(many().then(to_host).sync_on(&stream).unwrap(), [2000.0; LEN]);
        let policy = SingleStream::from(stream.clone());
        let awaited = block_on(many().then(to_host).schedule(&policy)).unwrap();
        assert_eq!(awaited, [4000.0; LEN]);
    }
}
