//! The graph cache of a GPU: work that repeats is launched as graphs, however the operation is written and run.

use std::{ops::ControlFlow, time::Duration};

use cuda_async::{Device, iterate, policy::SingleStream, prelude::*};
use cuda_driver::CudaProvider;
use futures::executor::block_on;

use crate::{
    devices::cuda,
    kernels::{Floats, Kernels},
};

const LEN: usize = 64;

const STEPS: usize = 6;

/// A GPU of its own, so that no other test changes its counts. `None` if there is no GPU.
fn own_gpu() -> Option<Device> {
    cuda()?;
    Some(Device::open(&CudaProvider::new(), 0).unwrap())
}

/// Runs an operation that adds 1 to `x` some times, until it is launched as a graph.
fn is_launched_as_graphs(device: &Device, mut run: impl FnMut(Floats) -> Floats) {
    let stream = device.new_stream().unwrap();
    let mut x = zeros::<f32>(LEN).sync_on(&stream).unwrap();
    let (start, mut runs) = (std::time::Instant::now(), 0);
    while device.graph_cache().launches < 10 {
        x = run(x);
        runs += 1;
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", device.graph_cache());
    }
    let expected = (runs * STEPS) as f32;
    assert_eq!(to_host(x).sync_on(&stream).unwrap(), [expected; LEN]);
}

#[test]
fn loops_are_launched_as_graphs() {
    let Some(device) = own_gpu() else { return };
    let (kernels, stream) = (Kernels::load(&device), device.new_stream().unwrap());
    is_launched_as_graphs(&device, |x| {
        let op = iterate((x, 1), |(x, step)| {
            kernels.add_scalar(x, 1.0).map(move |x| match step {
                STEPS => ControlFlow::Break(x),
                _ => ControlFlow::Continue((x, step + 1)),
            })
        });
        op.sync_on(&stream).unwrap()
    });
}

/// A script runs its operations in a context that was promoted while the window is open.
#[test]
fn scripts_are_launched_as_graphs() {
    let Some(device) = own_gpu() else { return };
    let (kernels, stream) = (Kernels::load(&device), device.new_stream().unwrap());
    let kernels = &kernels;
    let policy = SingleStream::from(stream.clone());
    let added = |x| {
        script(async move |cx| {
            let mut x = x;
            for _ in 0..STEPS {
                x = cx.run(kernels.add_scalar(x, 1.0)).await?;
            }
            Ok(x)
        })
    };
    is_launched_as_graphs(&device, |x| added(x).sync_on(&stream).unwrap());
    is_launched_as_graphs(&device, |x| block_on(added(x).schedule(&policy)).unwrap());
}
