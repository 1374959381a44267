//! Operations that were dropped: their work that has not begun is skipped, behind a node and on the local CPU device.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use cuda_async::{
    Device, DeviceBuffer, Error, Function, LaunchConfig, launch, policy::SingleStream, prelude::*,
    race, uninitialized,
};
use cuda_core::Backlog;

use crate::harness::{LONG, Node, device, wait_until};

/// `hold` writes `x` when the word behind `gate` is not 0 any more. `forever` writes `out` and does not end. `spin`
/// writes `out` after some iterations. `next` writes `x` + 1.
const KERNELS: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 x, .param .u64 gate)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [gate];
WAIT:
    ld.volatile.global.u32 %r1, [%rd2+4];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra WAIT;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry forever(.param .u64 x, .param .u64 out)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [out];
AGAIN:
    ld.volatile.global.u32 %r1, [%rd1];
    st.volatile.global.u32 [%rd2], %r1;
    bra.uni AGAIN;
}
.visible .entry spin(.param .u64 out, .param .u32 times)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [times];
AGAIN:
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry next(.param .u64 x, .param .u64 out)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [out];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%rd2], %r1;
    ret;
}
";

const ONE: LaunchConfig = LaunchConfig::new(1, 1);

type Words = DeviceBuffer<u32>;

fn function(device: &Device, name: &str) -> Function {
    device.load_ptx_blocking(KERNELS).unwrap().function(name).unwrap()
}

fn local() -> Device {
    cuda_async::open_blocking("cpu").unwrap()
}

/// Launches a kernel that reads one word of `x` and writes one word of its output.
fn of_word(kernel: &Function, x: &Arc<Words>) -> impl DeviceOp<Output = Words> + use<> {
    let (kernel, x) = (kernel.clone(), x.clone());
    uninitialized::<u32>(1).then(move |out| {
        // SAFETY: reads one word of `x` and writes one word of `out`.
        unsafe { launch(&kernel, ONE, (x, out)) }.map(|(_, out)| out)
    })
}

/// Drops a future after a time at most, or a whole number of polls.
fn drop_within(time: Duration, future: impl Future) {
    let (mut future, start) = (pin!(future), Instant::now());
    let mut task = Context::from_waker(Waker::noop());
    while future.as_mut().poll(&mut task).is_pending() {
        if start.elapsed() >= time {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Behind a kernel that waits come 300 operations that would not end. Each is dropped, by itself, by `timeout` or by
/// `race`. If one of them ran, the next operation would never end.
fn next_operation_waits_for_no_dropped_one(device: &Device) {
    let [hold, forever, next] = ["hold", "forever", "next"].map(|name| function(device, name));
    let (stream, opens) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    let policy = SingleStream::from(stream.clone());
    let mut gate = zeros::<u32>(2).sync_on(&stream).unwrap();
    let (read, written) = gate.split_at_mut(1).unwrap();
    let x = zeros::<u32>(1).sync_on(&stream).unwrap();
    // SAFETY: writes `x`. It reads the word behind `read`, which is memory of the same allocation, until another stream
    // has written it.
    let held = unsafe { launch(&hold, ONE, (x, read)).async_on(&stream) }.unwrap();
    let x = Arc::new(held.0);
    for number in 0..100 {
        let endless = || of_word(&forever, &x).then(to_host);
        drop_within(Duration::from_millis(number % 4), endless().schedule(&policy));
        let timeout = endless().timeout(Duration::from_millis(number % 4)).schedule(&policy);
        assert!(matches!(timeout.wait(), Err(Error::TimedOut { .. })));
        let won = race!(endless(), cuda_async::value(vec![7]));
        assert_eq!(won.schedule(&policy).wait(), Ok(vec![7]));
    }
    let mut last = of_word(&next, &x).then(to_host).timeout(LONG).schedule(&policy);
    assert!(
        std::pin::Pin::new(&mut last).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    );
    // A lease handles its commands in order: an answer to a later one shows that everything was received.
    zeros::<u8>(1).then(to_host).sync_on(&opens).unwrap();
    cuda_async::memory::fill(written, 1).sync_on(&opens).unwrap();
    assert_eq!(last.wait(), Ok(vec![2]));
    device.synchronize().unwrap();
    assert_eq!(device.backlog(), Backlog::default());
}

#[test]
fn next_operation_on_a_lease_waits_for_no_dropped_one() {
    if device() != "cpu" {
        return println!("a GPU completes what it has received; only the CPU device cancels it");
    }
    let node = Node::start(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    next_operation_waits_for_no_dropped_one(lease.device());
}

#[test]
fn next_operation_on_the_cpu_device_waits_for_no_dropped_one() {
    next_operation_waits_for_no_dropped_one(&local());
}

/// The worker counts what the client does not wait for too.
#[test]
fn backlog_of_a_lease_is_in_the_metrics() {
    if device() != "cpu" {
        return println!("a GPU completes what it has received; only the CPU device cancels it");
    }
    let node = Node::start(&["--metrics", "127.0.0.1:0"]);
    let lease = node.lease().acquire_blocking().unwrap();
    let device = lease.device();
    let [hold, next] = ["hold", "next"].map(|name| function(device, name));
    let (stream, opens) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    let mut gate = zeros::<u32>(2).sync_on(&stream).unwrap();
    let (read, written) = gate.split_at_mut(1).unwrap();
    let x = zeros::<u32>(1).sync_on(&stream).unwrap();
    let backlog = || node.metric("cuda_node_tenant_backlog{tenant=\"\"}");
    let bytes = || node.metric("cuda_node_tenant_backlog_memory_bytes{tenant=\"\"}");
    wait_until("the backlog is empty", || (backlog(), bytes()) == (0.0, 0.0));
    // SAFETY: writes `x`. It reads the word behind `read`, which is memory of the same allocation, until another stream
    // has written it.
    let held = unsafe { launch(&hold, ONE, (x, read)).async_on(&stream) }.unwrap();
    let x = Arc::new(held.0);
    // SAFETY: the outputs are dropped.
    drop(unsafe { of_word(&next, &x).async_on(&stream) }.unwrap());
    let values = device.pinned::<u8>(1 << 20).unwrap();
    drop(DeviceBuffer::uploaded(&stream, values).unwrap());
    // Two launches, an allocation and the upload, with its memory.
    wait_until("the backlog is reported", || backlog() >= 3.0 && bytes() >= f64::from(1 << 20));
    assert!(device.backlog().submissions >= 3);
    wait_until("the lease has the same backlog", || {
        let lease = &node.json()["leases"][0];
        lease["backlog"].as_u64() >= Some(3) && lease["backlog_bytes"].as_u64() >= Some(1 << 20)
    });
    cuda_async::memory::fill(written, 1).sync_on(&opens).unwrap();
    // Without a request of the client.
    wait_until("the backlog is empty again", || (backlog(), bytes()) == (0.0, 0.0));
}

/// Prints the time that the next operation waits behind 300 operations, each dropped within 30 ms, beside the time of
/// one of them.
#[test]
#[ignore = "a measurement, which takes 20 seconds"]
fn measure_the_wait_behind_dropped_operations() {
    if device() != "cpu" {
        return println!("a GPU completes what it has received; only the CPU device cancels it");
    }
    let node = Node::start(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    for (name, device) in [("the CPU device", &local()), ("a lease", lease.device())] {
        let spin = function(device, "spin");
        let spinning = |times: u32| {
            let spin = spin.clone();
            uninitialized::<u32>(1).then(move |out| {
                // SAFETY: writes one word of `out`.
                unsafe { launch(&spin, ONE, (out, times)) }.then(to_host)
            })
        };
        let policy = SingleStream::new(device).unwrap();
        let timed = |times| {
            let start = Instant::now();
            spinning(times).schedule(&policy).wait().unwrap();
            start.elapsed()
        };
        timed(1);
        // Of about 100 ms.
        let times = (1_000_000.0 * 0.1 / timed(1_000_000).as_secs_f64()) as u32;
        let one = (0..5).map(|_| timed(times)).max().unwrap();
        let begin = Instant::now();
        for number in 0..300 {
            drop_within(Duration::from_millis(number % 31), spinning(times).schedule(&policy));
        }
        let (dropped, next) = (begin.elapsed(), timed(1));
        println!(
            "{name}: one operation {one:.1?}; 300 dropped in {dropped:.1?}; the next one waited {next:.1?}"
        );
        assert!(next <= one + Duration::from_millis(50), "{next:?}");
    }
}

/// The node refuses an allocation immediately, before an earlier kernel faults. The client waits for the bytes of a
/// skipped download until the node reports that it has failed.
#[test]
fn fault_is_reported_also_in_front_of_an_allocation_that_is_refused() {
    if device() != "cpu" {
        return eprintln!("skipped: a fault of a GPU ends the session");
    }
    const BYTES: u64 = 64 << 20;
    let node = Node::start(&[]);
    let lease = node.lease().min_vram(BYTES).acquire_blocking().unwrap();
    // The client does not know of the memory of submits.
    let job = lease.submit("iota", include_str!("../../../kernels/iota.ptx")).arg(&1u32);
    job.max_output(4).region_bytes(BYTES / 4 * 3).launch_blocking().unwrap();
    let device = lease.device();
    let hold = function(device, "hold");
    let faults = include_str!("../../../kernels/faults.ptx");
    let null_store = device.load_ptx_blocking(faults).unwrap().function("null_store").unwrap();
    let (stream, opens) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    let policy = SingleStream::from(stream.clone());
    let mut gate = zeros::<u32>(2).sync_on(&stream).unwrap();
    let (read, written) = gate.split_at_mut(1).unwrap();
    let x = zeros::<u32>(1).sync_on(&stream).unwrap();
    // SAFETY: writes `x`. It reads the word behind `read`, which is memory of the same allocation, until another stream
    // has written it.
    drop(unsafe { launch(&hold, ONE, (x, read)).async_on(&stream) }.unwrap());
    // SAFETY: takes no argument. It writes to address 0, which the device refuses.
    let mut faulted = unsafe { launch(&null_store, ONE, ()) }.settled().schedule(&policy);
    let mut skipped = zeros::<u8>(1).then(to_host).timeout(LONG).schedule(&policy);
    let mut refused = zeros::<u8>(BYTES as usize / 2).settled().schedule(&policy);
    let task = &mut Context::from_waker(Waker::noop());
    assert!(std::pin::Pin::new(&mut faulted).poll(task).is_pending());
    assert!(std::pin::Pin::new(&mut skipped).poll(task).is_pending());
    assert!(std::pin::Pin::new(&mut refused).poll(task).is_pending());
    // An answer to a later command shows that the allocation was refused.
    zeros::<u8>(1).then(to_host).sync_on(&opens).unwrap();
    cuda_async::memory::fill(written, 1).sync_on(&opens).unwrap();
    let refused = refused.wait().map(drop).unwrap_err();
    assert!(refused.to_string().contains("bytes requested"), "{refused}");
    for failed in [faulted.wait(), skipped.wait().map(drop)] {
        let error = failed.unwrap_err();
        assert!(matches!(error, Error::Fault(_)), "{error}");
    }
}
