//! Recorded operations on a leased device.

use cuda_async::{Device, LaunchConfig, Result, graph::CudaGraph, join_all, launch, prelude::*};
use cuda_core::{Error, FaultKind};

use crate::harness::{Node, wait_until};

const LEN: usize = 64;

/// An upload, and then some kernels in sequence.
fn steps(
    device: &Device,
    input: &[f32],
    count: usize,
) -> Result<CudaGraph<cuda_async::DeviceBuffer<f32>>> {
    let basic = device.load_ptx_blocking(include_str!("../../../../kernels/basic.ptx"))?;
    let add = basic.function("add_scalar")?;
    let mut op = h2d(input.to_vec()).boxed();
    for _ in 0..count {
        let add = add.clone();
        op = op
            .then(move |x| {
                // SAFETY: reads and writes the 64 elements of `x`.
                unsafe { launch(&add, LaunchConfig::new(1, 64), (x, 1.5f32, LEN as u32)) }
            })
            .boxed();
    }
    op.graph_on(&device.new_stream()?)
}

#[test]
fn graph_is_one_operation_and_agrees_with_a_local_one() {
    let node = Node::start(&["--metrics", "127.0.0.1:0"]);
    let lease = node.lease().acquire_blocking().unwrap();
    let local = cuda_async::open_blocking("cpu").unwrap();
    let input: Vec<f32> = (0..LEN as u8).map(f32::from).collect();
    let graphs = [lease.device(), &local].map(|device| steps(device, &input, 100).unwrap());
    graphs.iter().for_each(|graph| graph.upload().unwrap());
    for _ in 0..10 {
        let [leased, local] = graphs.each_ref().map(|graph| {
            let stream = graph.device().new_stream().unwrap();
            graph.launch().then(to_host).sync_on(&stream).unwrap()
        });
        assert_eq!(leased, local);
        assert_eq!(leased[1], 151.0);
    }
    let launches = || node.metric("cuda_node_operations_total{kind=\"launch\"}");
    wait_until("the launches are counted", || launches() >= 10.0);
    assert_eq!(launches(), 10.0);
}

/// The uploads of this graph have more than the bytes that travel with a command.
#[test]
fn large_graph_travels_beside_other_work() {
    let node = Node::start(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    let (device, stream) = (lease.device(), lease.device().new_stream().unwrap());
    let input: Vec<u32> = (0..300_000).collect();
    let uploads = (0..4).map(|_| h2d(input.clone()));
    let graph = join_all(uploads).graph_on(&stream).unwrap();
    graph.upload().unwrap();
    for _ in 0..2 {
        let all = graph.launch().sync_on(&stream).unwrap();
        for one in &*all {
            assert!(to_host(one).sync_on(&stream).unwrap() == input);
        }
    }
    assert_eq!(h2d([7u32]).then(to_host).sync_on(&stream).unwrap(), [7]);
    assert!(device.memory().unwrap().used > 0);
}

/// The host memory of a node for graphs does not grow with the number of graphs that were dropped.
#[test]
fn many_graphs_one_after_the_other_are_prepared() {
    let node = Node::start(&["--metrics", "127.0.0.1:0"]);
    let lease = node.lease().acquire_blocking().unwrap();
    let stream = lease.device().new_stream().unwrap();
    // Each has 12 MiB of the 256 MiB that the graphs of a lease may use.
    let input = vec![3u8; 6 << 20];
    for _ in 0..25 {
        let graph = h2d(input.clone()).graph_on(&stream).unwrap();
        graph.upload().unwrap();
        graph.launch().sync_on(&stream).unwrap();
    }
    let writes = || node.metric("cuda_node_operations_total{kind=\"write\"}");
    let launches = || node.metric("cuda_node_operations_total{kind=\"launch\"}");
    wait_until("the launches are counted", || launches() + writes() >= 25.0);
    assert_eq!((launches(), writes()), (25.0, 0.0));
}

#[test]
fn fault_inside_a_graph_loses_the_contents_behind_it() {
    let node = Node::start(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    let (device, stream) = (lease.device(), lease.device().new_stream().unwrap());
    let faults = device.load_ptx_blocking(include_str!("../../../../kernels/faults.ptx")).unwrap();
    let trap = faults.function("trap_at").unwrap();
    let trapped = zeros::<u32>(LEN).then(move |x| {
        // SAFETY: writes the buffer, of 64 elements, or traps.
        unsafe { launch(&trap, LaunchConfig::new(1, 64), (x, 5u32, LEN as u32)) }
    });
    let graph = zip!(h2d([7u32; LEN]), trapped).graph_on(&stream).unwrap();
    graph.upload().unwrap();
    let other = h2d([1u32; 4]).sync_on(&stream).unwrap();
    let error = graph.launch().sync_on(&stream).map(drop).unwrap_err();
    let Error::Fault(fault) = &error else { panic!("{error}") };
    assert_eq!(fault.kind, FaultKind::Trap);
    if crate::harness::device() != "cpu" {
        // A GPU is lost for the worker.
        device.reset().unwrap_err();
        return;
    }
    device.reset().unwrap();
    let output = graph.take_output().unwrap();
    let lost = to_host(&output.1).sync_on(&stream).unwrap_err();
    assert!(matches!(lost, Error::ContentsLost { .. }), "{lost}");
    assert_eq!(to_host(&output.0).sync_on(&stream).unwrap(), [7; LEN]);
    assert_eq!(to_host(other).sync_on(&stream).unwrap(), [1; 4]);
}
