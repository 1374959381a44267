//! No wake is lost, also if other wakers panic or call the library.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc, OnceLock,
        mpsc::{Sender, channel},
    },
    task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker},
    time::Duration,
};

use crate::{devices::own_cuda, kernels::Kernels, on_every_device, polling::iterations_for};
use cuda_async::{
    Device, Error, ExecutionContext, LaunchConfig, Op, Stream,
    cuda_cpu::{CpuOptions, CpuProvider, Timing},
    in_order, launch,
    op::{Submit, Submitted},
    policy::SingleStream,
    prelude::*,
    script,
};
use cuda_core::internals::delivers_here;
use futures::{FutureExt, StreamExt, executor::block_on, stream::FuturesUnordered};

/// Opens a device that delays everything by up to `max_delay`.
fn slow(max_delay: Duration) -> Device {
    let mut options = CpuOptions::default();
    options.timing = Timing::Adversarial { seed: 7, max_delay };
    Device::open(&CpuProvider::new(options), 0).unwrap()
}

/// Returns the result of `test`, and panics if it hangs.
pub fn in_time<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = channel();
    std::thread::spawn(move || done.send(test()));
    result.recv_timeout(Duration::from_secs(60)).expect("a task was never woken")
}

/// A waker that panics with a payload whose drop panics.
struct Panics;

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::panic_any(Bomb);
    }
}

fn poll_with_panics<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    future.poll_unpin(&mut Context::from_waker(&Waker::from(Arc::new(Panics))))
}

#[test]
fn many_parts_of_one_script_wait_for_credit() {
    const PARTS: usize = 1200;
    let parts = in_time(|| {
        let device = slow(Duration::from_millis(1));
        let basic = device.load_ptx_blocking(include_str!("../../../kernels/basic.ptx")).unwrap();
        let empty = basic.function("empty").unwrap();
        let op = script(async move |cx| {
            // SAFETY: `empty` has no parameters and accesses nothing.
            let part = |_| cx.run(unsafe { launch(&empty, LaunchConfig::new(1, 1), ()) });
            let mut parts: FuturesUnordered<_> = (0..PARTS).map(part).collect();
            let mut ended = 0;
            while let Some(part) = parts.next().await {
                part?;
                ended += 1;
            }
            Ok(ended)
        });
        block_on(op.schedule(&SingleStream::new(&device).unwrap())).unwrap()
    });
    assert_eq!(parts, PARTS);
}

#[test]
fn waker_that_panics_does_not_block_clones_of_shared_work() {
    let bytes = in_time(|| {
        let device = slow(Duration::from_millis(50));
        let policy = SingleStream::new(&device).unwrap();
        let shared = h2d(vec![1u8; 3 << 20]).then(to_host).shared();
        let mut first = shared.clone().schedule(&policy);
        let second = shared.schedule(&policy);
        assert!(poll_with_panics(&mut first).is_pending());
        let bytes = block_on(second).unwrap().len();
        drop(first);
        bytes
    });
    assert_eq!(bytes, 3 << 20);
}

#[test]
fn wakers_that_panic_do_not_stop_notices_and_timer() {
    let bytes = in_time(|| {
        let device = slow(Duration::from_millis(5));
        let policy = SingleStream::new(&device).unwrap();
        for _ in 0..8 {
            let mut future = h2d([1u8; 10]).then(to_host).schedule(&policy);
            if poll_with_panics(&mut future).is_pending() {
                std::thread::sleep(Duration::from_millis(30));
            }
        }
        let mut never = Op::new(Never).timeout(Duration::from_millis(5)).schedule(&policy);
        assert!(poll_with_panics(&mut never).is_pending());
        std::thread::sleep(Duration::from_millis(50));
        let late = block_on(Op::new(Never).timeout(Duration::from_millis(5)).schedule(&policy));
        assert!(matches!(late, Err(Error::TimedOut { .. })));
        block_on(h2d([1u8; 10]).then(to_host).schedule(&policy)).unwrap()
    });
    assert_eq!(bytes, [1; 10]);
}

struct Never;

impl Submit for Never {
    type Output = ();

    fn submit(self, _: &mut Context<'_>, _: &ExecutionContext) -> Result<Submitted<Self>, Error> {
        Ok(Submitted::Pending(self))
    }
}

static STREAM: OnceLock<Stream> = OnceLock::new();
static ASKS: RawWakerVTable = RawWakerVTable::new(cloned, asks, asks, asks);

fn asks(_: *const ()) {
    drop(STREAM.get().and_then(|stream| stream.outcome(u64::MAX)));
}

fn cloned(data: *const ()) -> RawWaker {
    asks(data);
    RawWaker::new(data, &ASKS)
}

#[test]
fn waker_may_call_the_library_when_it_is_cloned() {
    in_time(|| {
        let stream = slow(Duration::from_millis(20)).new_stream().unwrap();
        STREAM.set(stream.clone()).ok();
        let op = zeros::<u8>(1 << 20).then(to_host).shared();
        let mut future = pin!(op.schedule(&SingleStream::from(stream)).into_future());
        // SAFETY: its functions use no data.
        let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &ASKS)) };
        for _ in 0..50 {
            drop(future.as_mut().poll(&mut Context::from_waker(&waker)));
        }
    });
}

#[test]
fn panicking_iterator_is_not_polled_again() {
    let device = slow(Duration::from_millis(1));
    let policy = SingleStream::new(&device).unwrap();
    let part = |i: u8| {
        assert_ne!(i, 1, "on purpose");
        h2d([i]).then(to_host)
    };
    let mut future = in_order((0..3).map(part)).schedule(&policy);
    assert!(catch_unwind(AssertUnwindSafe(|| block_on(&mut future))).is_err());
    let again = catch_unwind(AssertUnwindSafe(|| block_on(&mut future)));
    assert!(!matches!(again, Ok(Ok(_))), "an output without an element");
}

on_every_device! { fork_in_a_waker_is_an_error }

/// A waker of a device's notice runs on the thread that delivers the notices. A fork waits by wakers, so it could never
/// end there. (The helper thread that pins host memory runs wakers too, and there a fork ends.)
fn fork_in_a_waker_is_an_error(device: &Device) {
    struct RunsAFork(Stream, Sender<Option<Result<(), Error>>>);
    impl Wake for RunsAFork {
        fn wake(self: Arc<Self>) {
            let part = || zeros::<u8>(8).then(to_host);
            let run = || zip!(part(), part()).sync_on(&self.0).map(drop);
            self.1.send(delivers_here(self.0.device()).then(run)).unwrap();
        }
    }
    let (stream, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    let (send, receive) = channel();
    let waker = Waker::from(Arc::new(RunsAFork(other, send)));
    // Until a notice comes after the future has left its waker.
    let outcome = (0..1000).find_map(|_| {
        let mut future =
            zeros::<u8>(1 << 20).then(to_host).schedule(&SingleStream::from(stream.clone()));
        while future.poll_unpin(&mut Context::from_waker(&waker)).is_pending() {
            let ran = receive.recv_timeout(Duration::from_secs(20)).unwrap();
            if ran.is_some() {
                return ran;
            }
        }
        None
    });
    let outcome = outcome.expect("a notice wakes");
    assert!(matches!(outcome, Err(Error::Misuse(_))), "{outcome:?}");
}

#[test]
fn blocking_run_in_a_waker_waits_for_credit_on_the_cpu() {
    blocking_run_in_a_waker_waits_for_credit(Device::open(&CpuProvider::default(), 0).unwrap());
}

#[test]
fn blocking_run_in_a_waker_waits_for_credit_on_cuda() {
    if let Some(device) = own_cuda() {
        blocking_run_in_a_waker_waits_for_credit(device);
    }
}

/// A blocking run asks the device itself. It needs no notice, so it ends on the thread that delivers them.
fn blocking_run_in_a_waker_waits_for_credit(device: Device) {
    struct Runs(Stream, Sender<(bool, bool, Result<(), Error>)>);
    impl Wake for Runs {
        fn wake(self: Arc<Self>) {
            let (here, credit) = (delivers_here(self.0.device()), self.0.credit().is_available());
            let ran = zeros::<u8>(1).map(drop).sync_on(&self.0);
            _ = self.1.send((here, credit, ran));
        }
    }
    in_time(move || {
        let (stream, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
        let kernels = Kernels::load(&device);
        let [long, short] =
            [1000, 50].map(|millis| iterations_for(&device, Duration::from_millis(millis)));
        let kernels = &kernels;
        let spin =
            |iterations| zeros::<u32>(1).then(move |out| kernels.spin(out, iterations)).map(drop);
        // SAFETY: the outputs are dropped.
        unsafe {
            spin(long).async_on(&stream).unwrap();
            while zeros::<u8>(1).map(drop).async_on(&stream).is_ok() {}
        }
        let (send, receive) = channel();
        let waker = Waker::from(Arc::new(Runs(stream, send)));
        let mut future = spin(short).schedule(&SingleStream::from(other));
        assert!(future.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(receive.recv().unwrap(), (true, false, Ok(())));
    });
}
