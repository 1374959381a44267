//! Helpers that poll, drop and abort operations at unusual times.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use cuda_async::{
    Device, Error, ExecutionContext, Op,
    op::{Submit, Submitted},
    prelude::*,
};
use cuda_core::Provider;

use crate::{kernels::Kernels, link::LinkProvider, modules::hold_off_module_loads};

/// Steps whose first poll is pending.
pub struct PendingOnce(bool);

/// Creates an operation that panics in its second poll.
pub fn panics_in_second_poll() -> impl DeviceOp<Output = u8> {
    Op::new(PendingOnce(true)).map(|()| -> u8 { panic!("on purpose") })
}

impl Submit for PendingOnce {
    type Output = ();

    fn submit(
        self,
        task: &mut Context<'_>,
        _: &ExecutionContext,
    ) -> Result<Submitted<Self>, Error> {
        if self.0 {
            task.waker().wake_by_ref();
            return Ok(Submitted::Pending(Self(false)));
        }
        Ok(Submitted::Ready(()))
    }
}

/// Drops a future after 0 polls, another one after 1 poll, and so on, until one ends first.
pub fn dropped_at_every_poll<F: Future>(mut make: impl FnMut() -> F) {
    for polls in 0.. {
        let mut future = Box::pin(make());
        if (0..polls).any(|_| poll_and_wait(future.as_mut()).is_ready()) {
            return;
        }
    }
}

/// Polls, and then waits for a wake.
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

/// Opens a CPU device, and a leased one behind a slow link, that no other test uses.
pub fn own_devices() -> [Device; 2] {
    let link = LinkProvider::new(std::time::Duration::from_millis(2));
    let providers: [&dyn Provider; 2] = [&cuda_cpu::CpuProvider::default(), &link];
    providers.map(|provider| Device::open(provider, 0).unwrap())
}

/// Has the device keep this many idle blocks of host memory, so that the next copies need not wait for new ones.
pub fn idle_blocks(device: &Device, count: usize, bytes: usize) {
    let block = |_| device.pinned_uninitialized::<u8>(bytes).unwrap();
    drop((0..count).map(block).collect::<Vec<_>>());
}

/// Waits until the device has no more memory in use than `before`.
pub fn memory_is_freed(device: &Device, before: u64) {
    let until = Instant::now() + Duration::from_secs(20);
    while device.memory().unwrap().used > before && Instant::now() < until {
        device.synchronize().unwrap();
        std::thread::yield_now();
    }
    assert_eq!(device.memory().unwrap().used, before);
}

/// Returns the number of iterations of [`Kernels::spin`] that keep the device busy for about this time. From then on,
/// no other test [loads a module](hold_off_module_loads).
pub fn iterations_for(device: &Device, time: Duration) -> u32 {
    const PROBE: u32 = 100_000;
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let probe = |_| {
        let start = Instant::now();
        drop(zeros::<u32>(32).then(|out| kernels.spin(out, PROBE)).sync_on(&stream).unwrap());
        start.elapsed()
    };
    // The fastest run, limited to the speed of an idle device, because other tests run at the same time.
    let idle = if device.info().address.starts_with("cuda") { 500 } else { 2000 };
    let quickest = (0..4).map(probe).min().unwrap().min(Duration::from_micros(idle));
    let turns = time.as_secs_f64() / quickest.as_secs_f64();
    hold_off_module_loads(device);
    (f64::from(PROBE) * turns.max(1.0)) as u32
}

/// Runs a check that needs concurrent kernels. A GPU has few queues (eight, unless `CUDA_DEVICE_MAX_CONNECTIONS`
/// changes it), and streams that share a queue wait for each other's kernels. So the check is repeated there, on other
/// streams.
pub fn concurrently(device: &Device, check: impl Fn()) {
    // A leased GPU has the address of its node, and the driver of a GPU.
    let tries = if device.info().driver.is_some() { 8 } else { 1 };
    for _ in 1..tries {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(&check)).is_ok() {
            return;
        }
    }
    check();
}
