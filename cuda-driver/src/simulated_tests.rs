//! The backend on a simulated driver: reports beside foreign captures, frees and refusals, without a GPU.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

mod graphs;
mod mappings;
mod pools;
mod reuse;
mod windows;

use cuda_core::protocol::{
    AllocId, Answer, Backend, Control, DeviceInfo, Notice, NoticeSink, Pattern, Provider,
    RawStream, Region, Reply, Request, Result, StreamId, Submission, Ticket, Work,
};

use super::{Completion, CudaBackend, context::Primary, driver::api::simulated as driver};

/// Longer than any report takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Opens the simulated device of a [`Gpu`].
struct Simulated;

// SAFETY: `CudaBackend` keeps the rules of a backend, and `notices` goes to its completion thread alone.
unsafe impl Provider for Simulated {
    fn scheme(&self) -> &'static str {
        "simulated"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }

    fn open(&self, _: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        let primary = Primary::of(&driver::driver(), driver::own_device())?;
        Ok(Arc::new(CudaBackend::new(primary, notices, Completion::default())?))
    }
}

/// Waits until `reached` returns true. Panics after [`PATIENCE`].
fn wait_until(reached: impl Fn() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < PATIENCE, "the expected state was not reached in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A backend on a simulated device of its own.
struct Gpu {
    device: u32,
    backend: Arc<CudaBackend>,
    notices: Receiver<Ticket>,
    ids: AtomicU64,
}

type OnNotice = Box<dyn Fn(Ticket) + Send + Sync>;

/// Runs a function, if there is one, and then forwards the progress that was reported.
struct Sink(Sender<Ticket>, Arc<OnceLock<OnNotice>>);

// SAFETY: forwards notices as they are.
unsafe impl NoticeSink for Sink {
    unsafe fn notice(&self, notice: Notice) {
        let Notice::Progress { stream, complete, .. } = notice else { panic!("{notice:?}") };
        let ticket = Ticket { stream, number: complete };
        if let Some(run) = self.1.get() {
            run(ticket);
        }
        _ = self.0.send(ticket);
    }
}

impl Gpu {
    fn open() -> Self {
        Self::with(Arc::default())
    }

    fn with(on_notice: Arc<OnceLock<OnNotice>>) -> Self {
        let device = driver::own_device();
        let (sender, notices) = channel();
        let primary = Primary::of(&driver::driver(), device).unwrap();
        let sink = Arc::new(Sink(sender, on_notice));
        let backend = CudaBackend::new(primary, sink, Completion::default()).unwrap();
        Self { device, backend: Arc::new(backend), notices, ids: AtomicU64::new(1) }
    }

    fn control(&self, control: Control) {
        // SAFETY: each test uses its memory on one stream at a time, or orders its streams.
        unsafe { self.backend.control(control) }.unwrap();
    }

    fn stream(&self) -> Stream<'_> {
        let id = StreamId(self.ids.fetch_add(1, Ordering::Relaxed));
        self.control(Control::CreateStream { id, priority: 0 });
        Stream { gpu: self, id, number: AtomicU64::new(0) }
    }

    fn want(&self, ticket: Ticket) {
        self.control(Control::Want { ticket });
    }

    /// Waits for progress that covers a ticket.
    fn progress_to(&self, ticket: Ticket) {
        loop {
            let progress = self.notices.recv_timeout(PATIENCE).expect("a report");
            if progress.stream == ticket.stream && progress.number >= ticket.number {
                return;
            }
        }
    }

    fn memory_in_use(&self) -> u64 {
        let (sender, reply) = channel();
        self.backend.request(Request::Memory, Answer::new(move |reply| _ = sender.send(reply)));
        match reply.recv_timeout(PATIENCE).unwrap().unwrap() {
            Reply::Memory(memory) => memory.used,
            other => panic!("{other:?}"),
        }
    }
}

struct Stream<'a> {
    gpu: &'a Gpu,
    id: StreamId,
    number: AtomicU64,
}

impl Stream<'_> {
    fn next(&self) -> Ticket {
        Ticket { stream: self.id, number: self.number.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    fn alloc(&self) -> AllocId {
        let id = AllocId(self.gpu.ids.fetch_add(1, Ordering::Relaxed));
        self.gpu.control(Control::Allocate { id, bytes: 64, at: self.next() });
        id
    }

    /// Enqueues a kernel that runs when its gate is opened. Returns its ticket and its gate.
    fn kernel(&self, after: &[Ticket]) -> (Ticket, u32) {
        let gate = driver::gate();
        let to = Region { alloc: self.alloc(), offset: 0 };
        let (work, ticket) =
            (Work::Fill { to, pattern: Pattern::Word(gate), count: 1 }, self.next());
        // SAFETY: each test uses its memory on one stream at a time, or orders its streams.
        unsafe { self.gpu.backend.submit(&Submission { ticket, after, work: &work }, &[]) }
            .unwrap();
        (ticket, gate)
    }

    fn join(&self, after: &[Ticket]) -> Ticket {
        let ticket = self.next();
        let join = Submission { ticket, after, work: &Work::Join };
        // SAFETY: each test uses its memory on one stream at a time, or orders its streams.
        unsafe { self.gpu.backend.submit(&join, &[]) }.unwrap();
        ticket
    }

    /// Captures the stream in a foreign call while `inside` runs. Returns the call's ticket.
    fn captured(&self, inside: impl Fn()) -> Ticket {
        let ticket = self.next();
        let mut submit = |raw: RawStream| {
            driver::begin_capture(raw.stream);
            inside();
            assert!(driver::end_capture(raw.stream), "the capture is not valid");
            Ok(())
        };
        // SAFETY: enqueues nothing.
        unsafe { self.gpu.backend.foreign().unwrap().submit(ticket, &[], &mut submit) }.unwrap();
        ticket
    }
}

#[test]
fn report_does_not_wait_for_a_free_behind_the_work() {
    let gpu = Gpu::open();
    let (long, short) = (gpu.stream(), gpu.stream());
    let shared = long.alloc();
    let (later, _closed) = long.kernel(&[]);
    let (ticket, gate) = short.kernel(&[]);
    gpu.want(ticket);
    gpu.control(Control::Free { id: shared, stream: short.id, after: vec![later] });
    driver::open(gate);
    gpu.progress_to(ticket);
}

/// Four checkpoints are refused, and then the driver takes them again. The stream is never idle.
#[test]
fn busy_stream_is_reported_after_refused_checkpoints() {
    let gpu = Gpu::open();
    let stream = gpu.stream();
    driver::refuse_records(gpu.device, true);
    let wanted = || {
        let (ticket, gate) = stream.kernel(&[]);
        gpu.want(ticket);
        gate
    };
    let mut gates: Vec<_> = (0..4).map(|_| wanted()).collect();
    driver::refuse_records(gpu.device, false);
    let start = Instant::now();
    while gpu.notices.recv_timeout(Duration::from_millis(1)).is_err() {
        gates.push(wanted());
        let (_running, ended) = gates.split_last().unwrap();
        ended.iter().for_each(|gate| driver::open(*gate));
        assert!(start.elapsed() < PATIENCE, "no report");
    }
}

#[test]
fn blocking_on_the_completion_thread_ends() {
    let on_notice = Arc::new(OnceLock::<OnNotice>::new());
    let gpu = Gpu::with(on_notice.clone());
    let (busy, other) = (gpu.stream(), gpu.stream());
    let (first, gate) = busy.kernel(&[]);
    gpu.want(first);
    let (_later, _closed) = busy.kernel(&[]);
    let (ticket, own_gate) = other.kernel(&[]);
    let backend = Arc::downgrade(&gpu.backend);
    let block = move |report: Ticket| {
        if report == ticket {
            driver::open(gate);
            // SAFETY: no stream is retired.
            unsafe { backend.upgrade().unwrap().block_until(first) }.unwrap();
        }
    };
    assert!(on_notice.set(Box::new(block)).is_ok());
    gpu.want(ticket);
    driver::open(own_gate);
    gpu.progress_to(ticket);
    gpu.progress_to(first);
}

#[test]
fn earlier_work_is_reported_during_a_capture() {
    let gpu = Gpu::open();
    let stream = gpu.stream();
    let (before, gate) = stream.kernel(&[]);
    let ticket = stream.captured(|| {
        gpu.want(before);
        driver::open(gate);
        gpu.progress_to(before);
        // SAFETY: no stream is retired.
        assert_eq!(unsafe { gpu.backend.peek(stream.id) }, Ok(before.number));
    });
    gpu.want(ticket);
    gpu.progress_to(ticket);
}

/// Another stream waits for later work, which records the stream's event again.
#[test]
fn report_wanted_during_a_call_does_not_wait_for_later_work() {
    let gpu = Gpu::open();
    let (stream, other) = (gpu.stream(), gpu.stream());
    let (before, gate) = stream.kernel(&[]);
    stream.captured(|| gpu.want(before));
    let (later, _closed) = stream.kernel(&[]);
    other.join(&[later]);
    driver::open(gate);
    gpu.progress_to(before);
}

#[test]
fn questions_do_not_end_a_capture() {
    let gpu = Gpu::open();
    let stream = gpu.stream();
    let (before, gate) = stream.kernel(&[]);
    stream.captured(|| {
        // SAFETY: no stream is retired.
        assert!(unsafe { gpu.backend.peek(stream.id) }.unwrap() < before.number);
        driver::open(gate);
        // SAFETY: no stream is retired.
        unsafe { gpu.backend.block_until(before) }.unwrap();
    });
}

#[test]
fn work_after_a_captured_stream_runs_and_is_not_captured() {
    let gpu = Gpu::open();
    let (stream, other) = (gpu.stream(), gpu.stream());
    let before = stream.join(&[]);
    let runs = OnceLock::new();
    stream.captured(|| _ = runs.set(other.kernel(&[before])));
    let (ticket, gate) = *runs.get().unwrap();
    driver::open(gate);
    gpu.want(ticket);
    gpu.progress_to(ticket);
    assert!(driver::has_run(gate));
}

#[test]
fn free_on_a_captured_stream_waits_for_the_end_of_the_call() {
    let gpu = Gpu::open();
    let stream = gpu.stream();
    let id = stream.alloc();
    stream.captured(|| {
        gpu.control(Control::Free { id, stream: stream.id, after: Vec::new() });
        assert_eq!(gpu.memory_in_use(), 64);
    });
    assert_eq!(gpu.memory_in_use(), 0);
}
