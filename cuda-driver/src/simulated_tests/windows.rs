//! The graph cache on the simulated driver: windows that repeat become graphs, and every wait for held work ends.

use cuda_core::protocol::{FunctionId, Launch, LaunchConfig, ModuleId};

use super::*;

/// A stream whose fills run at once, in windows.
struct Windows<'a> {
    stream: Stream<'a>,
    to: Region,
    raw: *mut std::ffi::c_void,
    /// The values in the order in which they were submitted.
    submitted: Vec<u32>,
}

impl<'a> Windows<'a> {
    fn new(gpu: &'a Gpu) -> Self {
        let stream = gpu.stream();
        let to = Region { alloc: stream.alloc(), offset: 0 };
        let raw = gpu.backend.foreign().unwrap().raw_stream(stream.id).unwrap().stream;
        Self { stream, to, raw, submitted: Vec::new() }
    }

    /// Submits a fill. It runs as soon as the driver has it.
    fn fill(&mut self) -> Ticket {
        self.fill_after(&[])
    }

    fn fill_after(&mut self, after: &[Ticket]) -> Ticket {
        let (value, ticket) = (driver::gate(), self.stream.next());
        driver::open(value);
        let work = Work::Fill { to: self.to, pattern: Pattern::Word(value), count: 1 };
        let submission = Submission { ticket, after, work: &work };
        // SAFETY: one stream uses the memory, and no module is used.
        unsafe { self.stream.gpu.backend.submit_deferrable(&submission, &[]) }.unwrap();
        self.submitted.push(value);
        ticket
    }

    fn flush(&self) {
        // SAFETY: no stream is retired.
        unsafe { self.stream.gpu.backend.flush(self.stream.id) }.unwrap();
    }

    /// A window of that many fills.
    fn window(&mut self, fills: usize) {
        (0..fills).for_each(|_| _ = self.fill());
        self.flush();
    }

    /// Submits four fills of a new allocation, which the stream holds. Returns the allocation and the first and last
    /// ticket.
    fn held(&mut self) -> (AllocId, [Ticket; 2]) {
        let id = self.stream.alloc();
        let before = std::mem::replace(&mut self.to.alloc, id);
        let tickets: Vec<_> = (0..4).map(|_| self.fill()).collect();
        self.to.alloc = before;
        (id, [tickets[0], tickets[3]])
    }

    fn cancel(&self, [first, last]: [Ticket; 2]) {
        let (stream, first, last) = (self.stream.id, first.number, last.number);
        self.stream.gpu.control(Control::Cancel { stream, first, last, downloads: false });
    }

    fn free(&self, id: AllocId) {
        let free = Control::Free { id, stream: self.stream.id, after: Vec::new() };
        self.stream.gpu.control(free);
    }

    /// Repeats a window until the next ones are launched as graphs.
    fn learn(&mut self, fills: usize) {
        let (start, graphs) = (Instant::now(), self.graphs());
        while self.graphs() == graphs {
            assert!(start.elapsed() < PATIENCE, "no graph");
            self.window(fills);
        }
    }

    fn graphs(&self) -> usize {
        driver::graphs_launched(self.raw)
    }

    /// Everything ran, in order.
    fn check(&self) {
        assert_eq!(driver::log(self.raw), self.submitted);
    }
}

#[test]
fn window_that_repeats_becomes_a_graph() {
    let gpu = Gpu::open();
    let mut windows = Windows::new(&gpu);
    (0..8).for_each(|_| windows.window(5));
    assert_eq!(windows.graphs(), 0);
    windows.learn(5);
    let graphs = windows.graphs();
    (0..20).for_each(|_| windows.window(5));
    assert_eq!(windows.graphs(), graphs + 20);
    windows.check();
    let info = gpu.backend.graph_cache();
    assert_eq!((info.built, info.launches, info.nodes), (1, 21, 105));
    // All values differ.
    assert_eq!(info.changes, info.nodes);
    assert!(info.bytes > 0);
}

/// Windows that begin alike share the held nodes until they differ.
#[test]
fn windows_of_other_lengths_keep_their_order() {
    let gpu = Gpu::open();
    let mut windows = Windows::new(&gpu);
    windows.learn(6);
    for fills in [3, 6, 1, 7, 6, 130, 5, 64, 65, 6] {
        windows.window(fills);
        windows.check();
    }
    windows.learn(3);
    windows.learn(70);
    windows.check();
}

#[test]
fn calls_that_depend_on_held_work_flush_it() {
    let gpu = Gpu::open();
    let (mut windows, mut other) = (Windows::new(&gpu), Windows::new(&gpu));
    windows.learn(4);
    let held = |windows: &mut Windows<'_>| {
        let ticket = windows.fill();
        assert!(driver::log(windows.raw).len() < windows.submitted.len(), "it is not held");
        ticket
    };
    // Another stream that waits for it.
    let ticket = held(&mut windows);
    other.fill_after(&[ticket]);
    windows.check();
    windows.flush();
    // A report.
    let ticket = held(&mut windows);
    gpu.want(ticket);
    gpu.progress_to(ticket);
    windows.check();
    windows.flush();
    // A blocked thread.
    let ticket = held(&mut windows);
    // SAFETY: no stream is retired.
    unsafe { gpu.backend.block_until(ticket) }.unwrap();
    windows.check();
    windows.flush();
    // A query.
    let ticket = held(&mut windows);
    // SAFETY: no stream is retired.
    while unsafe { gpu.backend.peek(windows.stream.id) }.unwrap() < ticket.number {}
    windows.check();
    windows.flush();
    // Work that cannot be held.
    held(&mut windows);
    windows.stream.join(&[]);
    windows.check();
    // Foreign work.
    held(&mut windows);
    windows.stream.captured(|| windows.check());
    // A free on another stream.
    let ticket = held(&mut windows);
    let id = windows.stream.alloc();
    gpu.control(Control::Free { id, stream: other.stream.id, after: vec![ticket] });
    windows.check();
}

#[test]
fn frees_wait_for_held_work() {
    let gpu = Gpu::open();
    let mut windows = Windows::new(&gpu);
    windows.learn(4);
    let used = gpu.memory_in_use();
    let id = windows.stream.alloc();
    windows.fill();
    gpu.control(Control::Free { id, stream: windows.stream.id, after: Vec::new() });
    assert_eq!(gpu.memory_in_use(), used + 64);
    windows.flush();
    assert_eq!(gpu.memory_in_use(), used);
    windows.check();
}

/// An allocation does not wait, so its number is above those of the held work before it.
#[test]
fn allocations_pass_held_work() {
    let gpu = Gpu::open();
    let mut windows = Windows::new(&gpu);
    windows.learn(4);
    for _ in 0..10 {
        windows.fill();
        windows.fill();
        let id = windows.stream.alloc();
        let number = windows.stream.number.load(Ordering::Relaxed);
        windows.fill();
        windows.fill();
        // SAFETY: no stream is retired.
        unsafe { gpu.backend.block_until(Ticket { stream: windows.stream.id, number }) }.unwrap();
        windows.check();
        windows.flush();
        gpu.control(Control::Free { id, stream: windows.stream.id, after: Vec::new() });
    }
}

#[test]
fn memory_of_a_dropped_stream_is_given_back() {
    let gpu = Gpu::open();
    let mut windows = Windows::new(&gpu);
    windows.learn(5);
    let value = *windows.submitted.last().unwrap();
    assert_eq!(driver::executables_with(value), 1);
    // SAFETY: no stream is retired before this returns.
    unsafe { gpu.backend.block_until(Ticket { stream: windows.stream.id, number: u64::MAX }) }
        .unwrap_err();
    gpu.control(Control::RetireStream { id: windows.stream.id });
    let start = Instant::now();
    while driver::executables_with(value) > 0 {
        assert!(start.elapsed() < PATIENCE, "the graph was not destroyed");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(gpu.backend.graph_cache().bytes, 0);
}

/// Two threads: one submits windows, and one asks for the progress of the same stream.
#[test]
fn flushes_of_other_threads_keep_the_order() {
    let gpu = Gpu::open();
    let mut windows = Windows::new(&gpu);
    windows.learn(5);
    let (id, stop) = (windows.stream.id, std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: no stream is retired.
                let number = unsafe { gpu.backend.peek(id) }.unwrap();
                assert!(number < u64::MAX);
            }
        });
        for _ in 0..2000 {
            windows.window(5);
        }
        stop.store(true, Ordering::Relaxed);
    });
    windows.check();
}

/// Random lengths, with flushes, allocations and joins between the fills.
#[test]
fn random_windows_keep_their_order() {
    let gpu = Gpu::open();
    let mut windows = Windows::new(&gpu);
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..3000 {
        for _ in 0..random(9) {
            let ticket = windows.fill();
            match random(40) {
                0 => windows.flush(),
                1 => _ = windows.stream.alloc(),
                2 => _ = windows.stream.join(&[]),
                // SAFETY: no stream is retired.
                3 => unsafe { gpu.backend.block_until(ticket) }.unwrap(),
                _ => {}
            }
        }
        windows.flush();
    }
    windows.check();
    assert!(gpu.backend.graph_cache().launches > 100, "{:?}", gpu.backend.graph_cache());
}

/// A report that is due inside a window does not split it.
#[test]
fn reports_wait_for_held_work() {
    let gpu = Gpu::open();
    let mut windows = Windows::new(&gpu);
    windows.learn(10);
    let before = gpu.backend.graph_cache();
    for round in 0..10 {
        let tickets: Vec<_> = (0..10).map(|_| windows.fill()).collect();
        gpu.backend.report(tickets[round]).unwrap();
        windows.flush();
        gpu.progress_to(tickets[round]);
    }
    windows.check();
    let after = gpu.backend.graph_cache();
    assert_eq!((after.launches - before.launches, after.nodes - before.nodes), (10, 100));
}

/// Windows that come before a wait go on with larger parts: 16, 32 and 52 nodes, and then 64 and 36.
#[test]
fn parts_grow_until_a_caller_waits() {
    let gpu = Gpu::open();
    let mut windows = Windows::new(&gpu);
    let start = Instant::now();
    loop {
        let before = gpu.backend.graph_cache();
        windows.window(100);
        windows.window(100);
        windows.check();
        // SAFETY: no stream is retired.
        unsafe { gpu.backend.peek(windows.stream.id) }.unwrap();
        let after = gpu.backend.graph_cache();
        if (after.launches - before.launches, after.nodes - before.nodes) == (5, 200) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{after:?}");
    }
    let sizes = gpu.backend.graph_cache().built;
    assert_eq!(sizes, 5, "other parts were built too");
}

/// Another thread may unload a module while the stream holds other work.
#[test]
fn unloading_a_module_keeps_held_work() {
    let gpu = Gpu::open();
    let mut windows = Windows::new(&gpu);
    windows.learn(4);
    // The stream learns a launch of the module. The module is unknown, so the driver never gets the launch.
    let module = ModuleId(77);
    let work = Work::Launch(Launch {
        function: FunctionId { module, entry: 0 },
        config: LaunchConfig::new(1, 1),
        params: Vec::new().into(),
        relocations: Vec::new().into(),
        variables: Vec::new().into(),
    });
    let ticket = windows.stream.next();
    let submission = Submission { ticket, after: &[], work: &work };
    // SAFETY: no memory is used.
    unsafe { gpu.backend.submit_deferrable(&submission, &[]) }.unwrap_err();
    windows.flush();
    windows.fill();
    assert!(driver::log(windows.raw).len() < windows.submitted.len(), "it is not held");
    // SAFETY: no launch of the module is in flight.
    _ = unsafe { gpu.backend.control(Control::UnloadModule { id: module }) };
    windows.fill();
    windows.flush();
    windows.check();
    windows.learn(4);
    windows.check();
}

#[test]
fn held_work_that_nothing_can_see_is_discarded() {
    let gpu = Gpu::open();
    let mut windows = Windows::new(&gpu);
    windows.learn(4);
    let used = gpu.memory_in_use();
    for round in 1..=10 {
        let ran = windows.submitted.len();
        let (id, tickets) = windows.held();
        windows.cancel(tickets);
        windows.free(id);
        windows.flush();
        windows.submitted.truncate(ran);
        windows.check();
        assert_eq!(gpu.backend.graph_cache().discarded, 4 * round);
        // It is complete, and so is what comes behind it.
        // SAFETY: no stream is retired.
        unsafe { gpu.backend.block_until(tickets[1]) }.unwrap();
        windows.window(4);
        windows.check();
    }
    assert_eq!(gpu.memory_in_use(), used);
}

#[test]
fn held_work_that_may_be_seen_runs() {
    let gpu = Gpu::open();
    let (mut windows, mut other) = (Windows::new(&gpu), Windows::new(&gpu));
    windows.learn(5);
    // A caller waits for it.
    let (id, _) = windows.held();
    windows.free(id);
    windows.flush();
    windows.check();
    // A caller waits for the last submission.
    let (id, [first, last]) = windows.held();
    windows.cancel([first, Ticket { number: last.number - 1, ..last }]);
    windows.free(id);
    windows.flush();
    windows.check();
    // The memory is kept.
    let (_, tickets) = windows.held();
    windows.cancel(tickets);
    windows.flush();
    windows.check();
    // Another stream reads the memory, and its free comes behind that.
    let (id, tickets) = windows.held();
    windows.cancel(tickets);
    let read = other.fill_after(&[tickets[1]]);
    windows.check();
    let free = Control::Free { id, stream: windows.stream.id, after: vec![read] };
    gpu.control(free);
    windows.flush();
    windows.check();
    // It waits with other work, which writes memory that is kept.
    let first = windows.fill();
    let (id, [_, last]) = windows.held();
    assert!(driver::log(windows.raw).len() + 5 == windows.submitted.len(), "it is not held");
    windows.cancel([first, last]);
    windows.free(id);
    windows.flush();
    windows.check();
    assert_eq!(gpu.backend.graph_cache().discarded, 0);
}

#[test]
fn cancelling_work_that_is_not_held_has_no_effect() {
    let gpu = Gpu::open();
    let mut windows = Windows::new(&gpu);
    let (id, tickets) = windows.held();
    windows.cancel(tickets);
    windows.free(id);
    windows.flush();
    windows.learn(4);
    let (id, tickets) = windows.held();
    windows.flush();
    windows.cancel(tickets);
    windows.free(id);
    let stream = StreamId(u64::MAX);
    gpu.control(Control::Cancel { stream, first: 1, last: 9, downloads: true });
    windows.window(4);
    windows.check();
    assert_eq!(gpu.backend.graph_cache().discarded, 0);
}

#[test]
fn kernel_of_an_unknown_module_may_have_other_effects() {
    let unknown = FunctionId { module: ModuleId(78), entry: 0 };
    assert!(Gpu::open().backend.modules.may_have_other_effects(unknown));
}
