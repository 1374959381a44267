//! Work whose future was dropped: the CPU device and leases skip it, unless something can see its results.
//!
//! A kernel that prints holds the device: the sink of its notices waits. So the work behind it has not begun, however
//! slow the machine is. A profile of the device counts the launches that have run.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use cuda_async::{
    BoxedOp, Device, DeviceFuture, Error, LaunchConfig, Retry,
    cuda_cpu::{CpuOptions, CpuProvider, Profile},
    in_order, join_all, launch,
    memory::fill,
    policy::StreamPoolRoundRobin,
    prelude::*,
    race, retry, zip,
};
use cuda_core::{Backend, DeviceInfo, NoticeSink, Provider, Result, protocol::Notice};
use futures::{FutureExt, executor::block_on};

use crate::{
    devices::own_lease,
    kernels::{Floats, Kernels},
};

/// Opens CPU devices on which a kernel that prints waits until the gate is open.
struct Gated {
    provider: CpuProvider,
    gate: Arc<Gate>,
}

struct Gate {
    begun: Mutex<Sender<()>>,
    open: Mutex<Receiver<()>>,
}

struct GatedSink(Arc<dyn NoticeSink>, Arc<Gate>);

// SAFETY: notices are passed on unchanged.
unsafe impl NoticeSink for GatedSink {
    unsafe fn notice(&self, notice: Notice) {
        if let Notice::Output { .. } = notice {
            _ = self.1.begun.lock().unwrap_or_else(PoisonError::into_inner).send(());
            _ = self.1.open.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
        // SAFETY: the notice is that of the backend.
        unsafe { self.0.notice(notice) };
    }
}

// SAFETY: the backend is that of the CPU device.
unsafe impl Provider for Gated {
    fn scheme(&self) -> &'static str {
        self.provider.scheme()
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.provider.devices()
    }

    fn open(&self, ordinal: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        self.provider.open(ordinal, Arc::new(GatedSink(notices, self.gate.clone())))
    }
}

/// A device whose work waits behind a kernel that does not end.
struct Held {
    device: Device,
    kernels: Kernels,
    policy: StreamPoolRoundRobin,
    profile: Arc<Profile>,
    /// The kernel that does not end states that it writes this memory.
    x: Arc<Floats>,
    open: Sender<()>,
}

impl Held {
    fn new(open_device: fn(Gated) -> Device) -> Self {
        let profile = Arc::new(Profile::new());
        let (send_begun, begun) = channel();
        let (open, wait) = channel();
        let gate = Gate { begun: Mutex::new(send_begun), open: Mutex::new(wait) };
        let provider = CpuProvider::new(CpuOptions::default().profile(profile.clone()));
        let device = open_device(Gated { provider, gate: Arc::new(gate) });
        let kernels = Kernels::load(&device);
        let print = include_str!("../../../kernels/print.ptx");
        let print = device.load_ptx_blocking(print).unwrap().function("print_values").unwrap();
        let stream = device.new_stream().unwrap();
        let x = h2d(vec![1.5f32; 16]).sync_on(&stream).unwrap();
        // SAFETY: reads one element of x. The output is used by operations of the library only.
        let x = unsafe { launch(&print, LaunchConfig::new(1, 1), (x, 1u32)).async_on(&stream) };
        begun.recv().unwrap();
        let policy = StreamPoolRoundRobin::with_streams(&device, 4).unwrap();
        Self { kernels, policy, profile, x: Arc::new(x.unwrap()), open, device }
    }

    /// Two launches, which wait for the kernel that does not end.
    fn op(&self) -> impl DeviceOp<Output = Floats> + use<> {
        let k = self.kernels.clone();
        self.kernels.add(self.x.clone(), self.x.clone()).then(move |sum| k.scale(sum, 2.0))
    }

    fn download(&self) -> impl DeviceOp<Output = Vec<f32>> + use<> {
        self.op().then(to_host)
    }

    fn begin<O: DeviceOp>(&self, op: O) -> DeviceFuture<<O as DeviceOp>::Steps> {
        let mut future = op.schedule(&self.policy);
        assert!(poll_once(&mut future).is_pending());
        future
    }

    fn drop_after_poll<O: DeviceOp>(&self, op: O) {
        drop(self.begin(op));
    }

    /// Waits until the device has received everything, and ends the kernel that holds it.
    fn release(&self) {
        // The reply comes behind all commands. The stream of the next submission does not matter.
        self.device.new_stream().unwrap().join(&[]).unwrap();
        self.device.memory().unwrap();
        self.open.send(()).unwrap();
    }

    /// The number of launches that have run, without the kernel that held the device.
    fn launches(&self) -> u64 {
        self.device.synchronize().unwrap();
        self.profile.kernels().iter().map(|kernel| kernel.launches).sum::<u64>() - 1
    }
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    future.poll_unpin(&mut Context::from_waker(Waker::noop()))
}

fn cpu(provider: Gated) -> Device {
    Device::open(&provider, 0).unwrap()
}

const DEVICES: [fn(Gated) -> Device; 2] = [cpu, own_lease::<Gated>];
/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);
/// `x + x`, times two.
const SUM: [f32; 16] = [6.0; 16];

#[test]
fn operation_behind_300_dropped_ones_waits_for_none_of_them() {
    for open in DEVICES {
        let held = Held::new(open);
        for turn in 0..60 {
            held.drop_after_poll(held.download());
            held.drop_after_poll(held.op());
            held.drop_after_poll(zip!(held.download(), held.op()).then(|(_, sum)| to_host(sum)));
            let timeout = held.download().timeout(Duration::from_micros(turn));
            let ended = block_on(timeout.schedule(&held.policy));
            assert!(matches!(ended, Err(Error::TimedOut { .. })), "{ended:?}");
            let first = race!(held.download(), cuda_async::value(vec![turn as f32]));
            assert_eq!(block_on(first.schedule(&held.policy)), Ok(vec![turn as f32]));
        }
        let next = held.begin(held.download());
        held.release();
        assert_eq!(block_on(next), Ok(SUM.to_vec()));
        assert_eq!(held.launches(), 2, "{}", held.device.info().address);
    }
}

#[test]
fn dropped_work_whose_results_can_be_seen_runs() {
    for open in DEVICES {
        let held = Held::new(open);
        let stream = held.device.new_stream().unwrap();
        // Detached: the output is here.
        // SAFETY: the output is used by operations of the library only.
        let output = unsafe { held.op().async_on(&stream) }.unwrap();
        // Shared: another clone waits for it.
        let shared = held.op().shared();
        let waits = held.begin(shared.clone().then(to_host));
        held.drop_after_poll(shared);
        // In place: the memory is borrowed and stays.
        // SAFETY: the output is used by operations of the library only.
        let sum = unsafe { held.kernels.add(held.x.clone(), held.x.clone()).async_on(&stream) };
        let mut sum = sum.unwrap();
        held.drop_after_poll(fill(&mut sum, 7.0));
        held.release();
        assert_eq!(to_host(output).sync_on(&stream), Ok(SUM.to_vec()));
        assert_eq!(block_on(waits), Ok(SUM.to_vec()));
        assert_eq!(to_host(sum).sync_on(&stream), Ok(vec![7.0; 16]));
        assert_eq!(held.launches(), 5);
    }
}

#[test]
fn output_that_is_dropped_while_a_caller_waits_is_computed() {
    for open in DEVICES {
        let held = Held::new(open);
        let waits = held.begin(held.op().map(drop));
        let detached = held.device.new_stream().unwrap();
        // SAFETY: the output is dropped.
        drop(unsafe { held.op().async_on(&detached) }.unwrap());
        held.release();
        assert_eq!(block_on(waits), Ok(()));
        // A caller may wait for the stream of the detached run.
        assert_eq!(detached.synchronize(), Ok(()));
        assert_eq!(held.launches(), 4);
    }
}

/// Each operation has two launches whose output it drops.
#[test]
fn every_combinator_computes_what_a_caller_waits_for() {
    type Unread = BoxedOp<'static, ()>;
    let of: [fn(&Held) -> Unread; 13] = [
        |held| held.op().map(drop).boxed(),
        |held| held.op().boxed().map(drop).boxed(),
        |held| held.op().named("op").map(drop).boxed(),
        |held| held.op().settled().map(drop).boxed(),
        |held| held.op().timed().map(drop).boxed(),
        |held| held.op().timeout(LONG).map(drop).boxed(),
        |held| held.op().map(drop).or_else(|_| cuda_async::value(())).boxed(),
        |held| join_all([held.op()]).map(drop).boxed(),
        |held| in_order([held.op()]).map(drop).boxed(),
        |held| zip!(held.op(), cuda_async::value(())).map(drop).boxed(),
        |held| race!(held.op()).map(drop).boxed(),
        |held| {
            let op = held.op().shared();
            let other = op.clone();
            let waits = op.map(drop).boxed();
            held.drop_after_poll(other);
            waits
        },
        |held| {
            let mut op = Some(held.op());
            retry(Retry::times(1), move || op.take().unwrap()).map(drop).boxed()
        },
    ];
    for open in DEVICES {
        for (number, op) in of.iter().enumerate() {
            let held = Held::new(open);
            let op = op(&held);
            let waits = held.begin(op);
            held.release();
            assert_eq!(block_on(waits), Ok(()));
            assert_eq!(held.launches(), 2, "operation {number}");
        }
    }
}

#[test]
fn operation_on_another_device_computes_what_a_caller_waits_for() {
    for open in DEVICES {
        let held = Held::new(open);
        let other = Device::open(&CpuProvider::default(), 0).unwrap();
        let other = StreamPoolRoundRobin::with_streams(&other, 1).unwrap();
        let mut waits = held.op().map(drop).on(&held.device).schedule(&other);
        assert!(poll_once(&mut waits).is_pending());
        held.release();
        assert_eq!(block_on(waits), Ok(()));
        assert_eq!(held.launches(), 2);
    }
}

#[test]
fn timeout_skips_what_has_not_begun() {
    for open in DEVICES {
        let held = Held::new(open);
        let timeout = held.download().timeout(Duration::from_millis(1)).schedule(&held.policy);
        assert!(matches!(block_on(timeout), Err(Error::TimedOut { .. })));
        // As a part of an operation that goes on.
        let other = held.download();
        let timeout = held.download().timeout(Duration::from_millis(1)).or_else(move |_| other);
        let mut waits = timeout.schedule(&held.policy);
        let begun = held.device.backlog().submissions;
        // Until the second one was submitted.
        while held.device.backlog().submissions == begun {
            assert!(poll_once(&mut waits).is_pending());
        }
        held.release();
        assert_eq!(block_on(waits), Ok(SUM.to_vec()));
        assert_eq!(held.launches(), 2, "{}", held.device.info().address);
    }
}

#[test]
fn race_skips_what_has_not_begun() {
    for open in DEVICES {
        let held = Held::new(open);
        let first = race!(held.download(), held.download(), cuda_async::value(vec![1.0]));
        assert_eq!(block_on(first.schedule(&held.policy)), Ok(vec![1.0]));
        let next = held.begin(held.download());
        held.release();
        assert_eq!(block_on(next), Ok(SUM.to_vec()));
        assert_eq!(held.launches(), 2, "{}", held.device.info().address);
    }
}

#[test]
fn backlog_of_dropped_operations_is_bounded() {
    for open in DEVICES {
        let held = Held::new(open);
        let policy = StreamPoolRoundRobin::with_streams(&held.device, 1).unwrap();
        let before = held.device.backlog().submissions;
        let limit = held.device.capabilities().submissions_in_flight;
        for _ in 0..limit {
            let mut future = held.download().schedule(&policy);
            assert!(poll_once(&mut future).is_pending());
        }
        let backlog = held.device.backlog().submissions - before;
        // The last operation that began may exceed the limit.
        assert!((limit..limit + 8).contains(&backlog), "{backlog} of {limit}");
        held.release();
        assert_eq!(block_on(held.download().schedule(&policy)), Ok(SUM.to_vec()));
        assert_eq!(held.launches(), 2);
    }
}
