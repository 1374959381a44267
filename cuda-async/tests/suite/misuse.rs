//! Misuse is an error: it neither hangs nor aborts the process.

use std::{
    sync::{Arc, Mutex, mpsc},
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};

use cuda_async::{
    BoxedOp, Device, Error, Result, Retry,
    cuda_cpu::CpuProvider,
    ops::MAX_NESTED_BOXES,
    policy::SingleStream,
    prelude::*,
    retry,
    runtime::{device_policy, set_device_policy},
    zip,
};
use futures::FutureExt;

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
