//! Ways to be unkind to operations.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use cuda_async::{Device, Error, ExecutionContext, Op, op::Submit, prelude::*};
use cuda_core::Provider;

use crate::{kernels::Kernels, link::LinkProvider};

/// Steps that poll others once more after their end, and give what they say then.
pub struct PolledAgain<S: Submit>(S);

pub fn polled_again<O: DeviceOp>(op: O) -> Op<PolledAgain<<O as DeviceOp>::Steps>> {
    Op::new(PolledAgain(op.into_steps()))
}

impl<S: Submit> Submit for PolledAgain<S> {
    type Output = Error;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Error, Error>> {
        if self.0.poll_submit(task, cx).is_pending() {
            return Poll::Pending;
        }
        match self.0.poll_submit(task, cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Ok(error)),
            Poll::Ready(Ok(_)) => panic!("it gave two outputs"),
            Poll::Pending => panic!("it goes on after its end"),
        }
    }
}

/// Runs a future for 0, 1, 2, .. polls and drops it, until one ends before that.
pub fn dropped_at_every_poll<F: Future>(mut make: impl FnMut() -> F) {
    for polls in 0.. {
        let mut future = Box::pin(make());
        if (0..polls).any(|_| poll_and_wait(future.as_mut()).is_ready()) {
            return;
        }
    }
}

/// Polls, and then waits until it is woken.
fn poll_and_wait<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let polled = future.poll(&mut Context::from_waker(&waker));
    if polled.is_pending() {
        std::thread::park_timeout(Duration::from_secs(20));
    }
    polled
}

/// A CPU device of the test's own, and one behind bytes.
pub fn own_devices() -> [Device; 2] {
    let link = LinkProvider::new(std::time::Duration::from_millis(2));
    let providers: [&dyn Provider; 2] = [&cuda_cpu::CpuProvider::default(), &link];
    providers.map(|provider| Device::open(provider, 0).unwrap())
}

/// Waits until a device of the test's own has no more memory in use than `before`.
pub fn memory_comes_back(device: &Device, before: u64) {
    let until = Instant::now() + Duration::from_secs(20);
    while device.memory().unwrap().used > before && Instant::now() < until {
        device.synchronize().unwrap();
        std::thread::yield_now();
    }
    assert_eq!(device.memory().unwrap().used, before);
}

/// Iterations of [`Kernels::spin`] that keep the device busy for about that long.
pub fn iterations_for(device: &Device, time: Duration) -> u32 {
    const PROBE: u32 = 100_000;
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let probe = |_| {
        let start = Instant::now();
        drop(zeros::<u32>(32).then(|out| kernels.spin(out, PROBE)).sync_on(&stream).unwrap());
        start.elapsed()
    };
    // The quickest, and no slower than such devices are when they have nothing else to do: other tests run, too.
    let idle = if device.info().address.starts_with("cuda") { 500 } else { 2000 };
    let quickest = (0..4).map(probe).min().unwrap().min(Duration::from_micros(idle));
    let turns = time.as_secs_f64() / quickest.as_secs_f64();
    (f64::from(PROBE) * turns.max(1.0)) as u32
}

/// Runs a check of what happens while something else runs. A GPU has few queues (eight, unless
/// `CUDA_DEVICE_MAX_CONNECTIONS` says otherwise), and streams that share one wait for each other's kernels: there
/// it is tried a few times, on other streams.
pub fn beside_each_other(device: &Device, check: impl Fn()) {
    let tries = if device.info().address.starts_with("cuda") { 8 } else { 1 };
    for _ in 1..tries {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(&check)).is_ok() {
            return;
        }
    }
    check();
}
