//! Limits on submissions and host memory in flight.

use std::{
    future::Future,
    ops::ControlFlow::{Break, Continue},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use cuda_async::{
    Device, Error, Stream, cuda_cpu::CpuProvider, graph::record, in_order, iterate, memory::fill,
    policy::SingleStream, prelude::*,
};
use cuda_core::protocol::Capabilities;
use futures::executor::block_on;

use crate::{
    kernels::Kernels, on_every_device, polling::iterations_for, wakes::in_time,
    wrapper::WrapperProvider,
};

on_every_device! {
    submissions_wait_for_credit
    blocking_run_waits_for_credit
    allocations_wait_for_credit
    uploads_wait_for_credit_of_host_memory
    async_on_is_busy_beyond_the_limit
    replay_is_busy_beyond_the_limit
}

const MANY: u32 = 3000;
/// The number of submissions by which a step may exceed the limit.
const MORE: u64 = 8;

/// A long kernel, and many launches behind it.
fn many_launches_behind_a_long_kernel(
    device: &Device,
    long: u32,
) -> impl DeviceOp<Output = Vec<f32>> + use<> + 'static {
    let kernels = Kernels::load(device);
    let spins = kernels.clone();
    zeros::<u32>(32)
        .then(move |out| spins.spin(out, long))
        .then(|_| zeros::<f32>(16))
        .then(move |x| {
            iterate((x, 0), move |(x, done)| {
                kernels.add_scalar(x, 1.0).map(move |x| match done + 1 {
                    MANY => Break(x),
                    done => Continue((x, done)),
                })
            })
        })
        .then(to_host)
}

/// Polls the operation until it ends, and checks that the limit of submissions always holds. Returns whether the limit
/// was reached.
fn reaches_the_limit<O: DeviceOp>(
    device: &Device,
    op: O,
    check: impl Fn(<O as DeviceOp>::Output),
) -> bool {
    let limit = device.capabilities().submissions_in_flight;
    let most = most_in_flight(device, op, check, Stream::in_flight);
    assert!(most <= limit + MORE, "{most}");
    most >= limit
}

/// Polls the operation until it ends. Returns the largest `count` of its stream.
fn most_in_flight<O: DeviceOp>(
    device: &Device,
    op: O,
    check: impl Fn(<O as DeviceOp>::Output),
    count: fn(&Stream) -> u64,
) -> u64 {
    let stream = device.new_stream().unwrap();
    let mut future = pin!(op.schedule(&SingleStream::from(stream.clone())));
    let mut most = 0;
    let output = loop {
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        most = most.max(count(&stream));
        match polled {
            Poll::Ready(output) => break output,
            Poll::Pending => thread::yield_now(),
        }
    };
    check(output.unwrap());
    most
}

/// Kernels that take longer and longer. Other tests, or a tool that slows submissions down, may let the first ones end
/// too soon.
fn long_kernels(device: &Device) -> impl Iterator<Item = u32> + use<> {
    let first = iterations_for(device, Duration::from_millis(400));
    (0..8).map(move |turn| first.saturating_mul(1 << turn))
}

fn submissions_wait_for_credit(device: &Device) {
    let once = |long| {
        reaches_the_limit(device, many_launches_behind_a_long_kernel(device, long), |sums| {
            assert_eq!(sums, [MANY as f32; 16]);
        })
    };
    assert!(long_kernels(device).any(once));
}

fn blocking_run_waits_for_credit(device: &Device) {
    let stream = device.new_stream().unwrap();
    let (watched, ended) = (stream.clone(), AtomicBool::new(false));
    thread::scope(|scope| {
        let ended = &ended;
        let watch = scope.spawn(move || {
            let mut most = 0;
            while !ended.load(Ordering::Relaxed) {
                most = most.max(watched.in_flight());
                thread::yield_now();
            }
            most
        });
        let long = iterations_for(device, Duration::from_millis(400));
        let sum = many_launches_behind_a_long_kernel(device, long).sync_on(&stream).unwrap();
        ended.store(true, Ordering::Relaxed);
        assert_eq!(sum, [MANY as f32; 16]);
        assert!(watch.join().unwrap() <= device.capabilities().submissions_in_flight + MORE);
    });
}

fn allocations_wait_for_credit(device: &Device) {
    let once = |long| {
        let kernels = Kernels::load(device);
        let slow = zeros::<u32>(32).then(move |out| kernels.spin(out, long));
        let op = slow.then(|_| in_order((0..1000).map(|_| zeros::<u8>(1)))).map(|all| all.len());
        reaches_the_limit(device, op, |len| assert_eq!(len, 1000))
    };
    assert!(long_kernels(device).any(once));
}

/// Each upload is too small to wait for its own blocks.
fn uploads_wait_for_credit_of_host_memory(device: &Device) {
    const BYTES: usize = 8 << 20;
    let limit = device.capabilities().host_bytes_in_flight;
    let uploads = 3 * limit as usize / (2 * BYTES);
    let data: Arc<[u8]> = vec![7; BYTES].into();
    let once = |long| {
        let (kernels, data) = (Kernels::load(device), data.clone());
        let slow = zeros::<u32>(32).then(move |out| kernels.spin(out, long));
        let upload = move |_| h2d(data.clone());
        let op = slow.then(move |_| in_order((0..uploads).map(upload))).map(|all| all.len());
        let check = |len| assert_eq!(len, uploads);
        let most =
            most_in_flight(device, op, check, |stream| stream.credit().host_bytes_in_flight());
        assert!(most < limit + 2 * BYTES as u64, "{most}");
        most >= limit
    };
    assert!(long_kernels(device).any(once));
}

fn async_on_is_busy_beyond_the_limit(device: &Device) {
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let add = |x| kernels.add_scalar(x, 1.0);
    let mut once = |long| {
        // SAFETY: the outputs are only used by operations.
        unsafe {
            let slow = zeros::<u32>(32).then(|out| kernels.spin(out, long));
            drop(slow.async_on(&stream).unwrap());
            let mut buffer = zeros::<f32>(16).async_on(&stream).unwrap();
            for _ in 0..MANY {
                let before = stream.submitted();
                match add(buffer).async_on(&stream) {
                    Ok(next) => buffer = next,
                    Err(error) => {
                        assert_eq!(stream.submitted(), before);
                        return Some(error);
                    }
                }
            }
        }
        stream.synchronize().unwrap();
        None
    };
    let error = long_kernels(device).find_map(&mut once).unwrap();
    assert!(error.is_retryable());
    let Error::Busy { unit: "submissions", in_flight, limit } = error else { panic!("{error}") };
    assert_eq!(limit, device.capabilities().submissions_in_flight);
    assert!((limit..=limit + MORE).contains(&in_flight), "{in_flight}");
    stream.synchronize().unwrap();
    // SAFETY: the output is only used by operations.
    let x = unsafe { zeros::<f32>(16).then(add).async_on(&stream) }.unwrap();
    assert_eq!(to_host(x).sync_on(&stream).unwrap(), [1.0; 16]);
}

fn replay_is_busy_beyond_the_limit(device: &Device) {
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let mut x = zeros::<f32>(16).sync_on(&stream).unwrap();
    let (_, recording) = record(fill(&mut x, 1.0), device).unwrap().into_parts();
    let mut once = |long| {
        let slow = zeros::<u32>(32).then(|out| kernels.spin(out, long));
        // SAFETY: the output is dropped.
        drop(unsafe { slow.async_on(&stream) }.unwrap());
        let refused = (0..MANY).find_map(|_| recording.replay(&stream).err());
        stream.synchronize().unwrap();
        refused.is_some_and(|error| matches!(error, Error::Busy { .. }))
    };
    assert!(long_kernels(device).any(&mut once));
    recording.replay(&stream).unwrap();
    assert_eq!(to_host(&x).sync_on(&stream).unwrap(), [1.0; 16]);
}

/// A limit of zero counts as one.
#[test]
fn work_runs_on_a_device_with_limits_of_zero() {
    let provider = WrapperProvider::new(CpuProvider::default());
    let mut capabilities = Capabilities::local(1 << 30);
    (capabilities.submissions_in_flight, capabilities.host_bytes_in_flight) = (0, 0);
    provider.watched.capabilities.set(capabilities).unwrap();
    let device = provider.open_device();
    let ended = in_time(move || {
        let stream = device.new_stream().unwrap();
        let op = || in_order((0..4u8).map(|i| h2d([i; 8]).then(to_host)));
        let awaited = block_on(op().schedule(&SingleStream::from(stream.clone())));
        (awaited, op().sync_on(&stream))
    });
    let all: Vec<_> = (0..4).map(|i| vec![i; 8]).collect();
    assert_eq!(ended, (Ok(all.clone()), Ok(all)));
}
