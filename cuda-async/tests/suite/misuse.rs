//! Misuse is an error: it neither hangs nor aborts the process.

use std::{
    sync::{Arc, Mutex, mpsc},
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};

use cuda_async::{
    BoxedOp, Device, Error, LaunchConfig, Result, Retry, Stream,
    cuda_core::Misuse,
    cuda_cpu::CpuProvider,
    launch,
    ops::MAX_NESTED_BOXES,
    policy::SingleStream,
    prelude::*,
    retry,
    runtime::{device_policy, set_device_policy},
    zip,
};
use futures::FutureExt;

use crate::devices::own_lease;

const PRINT: &str = include_str!("../../../kernels/print.ptx");

/// Runs `f` on a thread with the stack of a test or of a tokio worker.
fn within_ten_seconds<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().stack_size(2 << 20).spawn(move || sender.send(f())).unwrap();
    receiver.recv_timeout(Duration::from_secs(10)).expect("it hangs")
}

fn nested(depth: usize) -> BoxedOp<'static, usize> {
    (1..depth).fold(value(0).boxed(), |op, _| op.then(|n| value(n + 1)).boxed())
}

fn refused<T: std::fmt::Debug>(result: Result<T>, message: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

#[test]
fn nested_boxes_run_up_to_the_limit() {
    within_ten_seconds(|| {
        assert_eq!(nested(MAX_NESTED_BOXES).sync(), Ok(MAX_NESTED_BOXES - 1));
        refused(nested(MAX_NESTED_BOXES + 1).sync(), "nested");
    });
}

#[test]
fn nested_boxes_beyond_the_limit_are_an_error_on_a_small_stack() {
    within_ten_seconds(|| {
        refused(nested(10 * MAX_NESTED_BOXES).sync(), "nested");
        drop(nested(10 * MAX_NESTED_BOXES));
    });
}

#[test]
fn operations_that_box_their_successors_are_limited_too() {
    fn next(n: u32) -> BoxedOp<'static, u32> {
        value(n).then(|n| next(n + 1)).boxed()
    }
    within_ten_seconds(|| refused(next(0).sync(), "nested"));
}

#[test]
fn combinators_around_nested_boxes_run_on_a_small_stack() {
    within_ten_seconds(|| {
        let grow = |op: BoxedOp<'static, usize>, n: usize| match n % 9 {
            0 => op.map(|n| n).boxed(),
            1 => op.inspect(|_| ()).boxed(),
            2 => op.map_err(|error| error).boxed(),
            3 => op.or_else(Err::<BoxedOp<'static, usize>, _>).boxed(),
            4 => op.settled().boxed(),
            5 => op.timeout(Duration::from_secs(5)).boxed(),
            6 => zip!(op, value(())).map(|(n, ())| n).boxed(),
            7 => op.shared().map(|n| *n).boxed(),
            _ => op.wait_for_memory(Duration::ZERO).boxed(),
        };
        let most = (1..1000).fold(value(1).boxed(), grow);
        assert_eq!(most.sync(), Ok(1));
        drop((0..100_000).fold(value(1).boxed(), grow));
    });
}

/// Each operation waits for the one inside it by a waker, so its end wakes one after the other.
#[test]
fn nested_shared_operations_run_on_a_small_stack() {
    within_ten_seconds(|| {
        let shared = |op: BoxedOp<'static, usize>, _| op.shared().map(|n| *n).boxed();
        let levels = 0..MAX_NESTED_BOXES - 1;
        assert_eq!(levels.clone().fold(value(1).boxed(), shared).sync(), Ok(1));
        let copied = h2d([1u8]).then(to_host).map(|bytes| bytes.len()).boxed();
        assert_eq!(levels.fold(copied, shared).sync(), Ok(1));
    });
}

#[test]
fn shared_operation_that_awaits_itself_is_an_error() {
    type Own = Arc<Mutex<Option<BoxedOp<'static, Arc<u32>>>>>;
    within_ten_seconds(|| {
        let own = Own::default();
        let inside = own.clone();
        let op =
            value(()).then(move |()| inside.lock().unwrap().take().unwrap().map(|n| *n)).shared();
        *own.lock().unwrap() = Some(op.clone().boxed());
        refused(op.sync(), "its own result");
    });
}

#[test]
fn two_shared_operations_that_await_each_other_are_an_error() {
    type Slot = Arc<Mutex<Option<BoxedOp<'static, Arc<u32>>>>>;
    within_ten_seconds(|| {
        let slot = Slot::default();
        let inside = slot.clone();
        let first =
            value(()).then(move |()| inside.lock().unwrap().take().unwrap().map(|n| *n)).shared();
        let second = zip!(first.clone(), value(())).map(|(n, ())| *n).shared();
        *slot.lock().unwrap() = Some(second.clone().boxed());
        refused(first.sync(), "its own result");
        refused(second.sync(), "its own result");
    });
}

#[test]
fn device_policy_whose_constructor_requests_itself_is_an_error() {
    within_ten_seconds(|| {
        let device = Device::open(&CpuProvider::default(), 0).unwrap();
        set_device_policy(&device, |device| {
            device_policy(device)?;
            SingleStream::new(device)
        });
        refused(device_policy(&device).map(drop), "its own constructor");
        set_device_policy(&device, |device| {
            zeros::<u8>(1).on(device).sync()?;
            SingleStream::new(device)
        });
        refused(zeros::<u8>(1).on(&device).sync(), "its own constructor");
        set_device_policy(&device, SingleStream::new);
        assert_eq!(zeros::<u8>(1).on(&device).sync().unwrap().len(), 1);
    });
}

/// Fails, pauses for 10 ms, and fails again.
fn fails_twice() -> impl DeviceOp<Output = ()> {
    retry(Retry::times(1).when(|_| true), || Err::<BoxedOp<'static, ()>, _>(Error::OutsideScript))
}

/// A waker that blocks on an operation that needs the timer.
struct BlocksInWake(mpsc::Sender<Result<()>>);

impl Wake for BlocksInWake {
    fn wake(self: Arc<Self>) {
        self.0.send(fails_twice().sync()).unwrap();
    }
}

#[test]
fn blocking_run_in_a_waker_on_the_timer_thread_is_an_error() {
    let (sender, receiver) = mpsc::channel();
    let waker = Waker::from(Arc::new(BlocksInWake(sender)));
    value(()).sync().unwrap(); // opens the default device
    let mut waits = fails_twice().into_future();
    assert!(waits.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    refused(receiver.recv_timeout(Duration::from_secs(10)).expect("it hangs"), "waker");
}

/// A waker that runs blocking calls once, and sends their errors.
struct Calls<F>(Mutex<Option<F>>, mpsc::Sender<Vec<Option<Error>>>);

impl<F: FnOnce() -> Vec<Option<Error>> + Send> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        if let Some(calls) = self.0.lock().unwrap().take() {
            self.1.send(calls()).unwrap();
        }
    }
}

/// Runs `calls` in a waker of an operation on `stream`, and returns their errors.
fn in_a_waker(
    stream: &Stream,
    calls: impl FnOnce() -> Vec<Option<Error>> + Send + 'static,
) -> Vec<Option<Error>> {
    let device = stream.device();
    let print = device.load_ptx_blocking(PRINT).unwrap().function("print_hello").unwrap();
    let (open, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    device.set_output(move |_| _ = gate.lock().unwrap().recv());
    let policy = SingleStream::new(device).unwrap();
    // SAFETY: uses no memory.
    let mut held = unsafe { launch(&print, LaunchConfig::new(1, 1), ()) }.schedule(&policy);
    let (sender, receiver) = mpsc::channel();
    let waker = Waker::from(Arc::new(Calls(Mutex::new(Some(calls)), sender)));
    assert!(held.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    drop(open);
    receiver.recv_timeout(Duration::from_secs(10)).expect("it hangs")
}

#[test]
fn waits_that_would_not_end_in_a_waker_are_errors() {
    let cpu = Device::open(&CpuProvider::default(), 0).unwrap();
    for (device, is_lease) in [(cpu, false), (own_lease(CpuProvider::default()), true)] {
        let stream = device.new_stream().unwrap();
        let on = stream.clone();
        let errors = in_a_waker(&stream, move || {
            let part = || h2d([1u8]).then(to_host);
            let device = on.device();
            vec![
                part().shared().sync_on(&on).err(),
                zip!(part(), part()).sync_on(&on).err(),
                part().sync_on(&on).err(),
                device.memory().err(),
                device.load_ptx_blocking(PRINT).err(),
                device.synchronize().err(),
            ]
        });
        let (waits_by_waker, blocks) = errors.split_at(2);
        for error in waits_by_waker {
            assert_eq!(error, &Some(Misuse::BlockingWaker.into()), "{}", device.info().address);
        }
        // The CPU device has other threads, which these calls wait for.
        let expected = is_lease.then(|| Misuse::BlockingWaker.into());
        assert_eq!(blocks, vec![expected; blocks.len()], "{}", device.info().address);
        assert_eq!(h2d([7u8]).then(to_host).sync_on(&stream), Ok(vec![7]));
    }
}
