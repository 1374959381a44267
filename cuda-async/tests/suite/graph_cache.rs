//! The graph cache of a GPU: work that repeats is launched as graphs, however the operation is written and run.

use std::{ops::ControlFlow, time::Duration};

use cuda_async::{
    Device, DeviceBuffer, Error, LaunchConfig, iterate, launch, policy::SingleStream, prelude::*,
};
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

/// Two kernels that only write their operand, and one that also counts its launches in a variable.
const COUNTED: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .global .u32 count = 0;
.visible .entry store(.param .u64 p)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, 5;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry counts(.param .u64 p)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    atom.global.add.u32 %r1, [count], 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
";

/// Runs operations that launch twice and then fail, until some launches were discarded or `limit` operations have run.
/// Returns the number of operations.
fn fail_until_discarded(device: &Device, kernel: &cuda_async::Function, limit: u32) -> u32 {
    let stream = device.new_stream().unwrap();
    let policy = SingleStream::from(stream.clone());
    let launched = |x: DeviceBuffer<u32>| {
        // SAFETY: writes the one element of x.
        unsafe { launch(kernel, LaunchConfig::new(1, 1), (x,)) }
    };
    for number in 0..limit {
        if device.graph_cache().discarded > 0 {
            return number;
        }
        let op = cuda_async::uninitialized::<u32>(1).then(launched).then(launched);
        let op = op.try_map(|_| Err::<(), _>(Error::AlreadyEnded));
        let ended = match number % 2 {
            0 => op.sync_on(&stream),
            _ => block_on(op.schedule(&policy)),
        };
        assert!(ended.is_err());
    }
    limit
}

#[test]
fn held_work_of_a_failed_operation_is_discarded() {
    let Some(device) = own_gpu() else { return };
    let module = device.load_ptx_blocking(COUNTED).unwrap();
    let store = module.function("store").unwrap();
    let used = device.memory().unwrap().used;
    assert!(fail_until_discarded(&device, &store, 1000) < 1000, "{:?}", device.graph_cache());
    assert_eq!(device.memory().unwrap().used, used);
    // The stream and its windows go on.
    let kernels = Kernels::load(&device);
    let stream = device.new_stream().unwrap();
    let x = kernels.add_scalar(zeros::<f32>(LEN).sync_on(&stream).unwrap(), 1.0);
    assert_eq!(x.then(to_host).sync_on(&stream).unwrap(), [1.0; LEN]);
}

#[test]
fn held_work_with_other_effects_runs() {
    let Some(device) = own_gpu() else { return };
    let module = device.load_ptx_blocking(COUNTED).unwrap();
    let counts = module.function("counts").unwrap();
    assert_eq!(fail_until_discarded(&device, &counts, 200), 200);
    device.synchronize().unwrap();
    let count = module.variable::<u32>("count").unwrap();
    let stream = device.new_stream().unwrap();
    assert_eq!(to_host(count).sync_on(&stream).unwrap(), [400]);
}
