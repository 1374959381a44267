//! A device under test, with ids and numbers for the objects that a test makes on it.

use std::{
    any::Any,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant},
};

use cuda_driver::CudaProvider;

use cuda_core::{
    LaunchConfig, NoticeSink, Provider,
    protocol::{
        Access, AllocId, Answer, Backend, Control, Error, FunctionId, HostBlock, HostRegion,
        Launch, ModuleId, ModuleImage, Notice, Region, Relocation, Reply, Request, Result,
        StreamId, Submission, Ticket, Work,
    },
};
use parking_lot::Mutex;

/// Longer than any notice takes, also the one of a fault.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Gpu {
    pub(crate) backend: Arc<dyn Backend>,
    notices: Receiver<Notice>,
    ids: AtomicU64,
    /// The last number of each stream. Held while a submission is made, so that numbers count up.
    numbers: Mutex<HashMap<StreamId, u64>>,
}

struct Sink(Sender<Notice>);

// SAFETY: forwards notices as they are.
unsafe impl NoticeSink for Sink {
    unsafe fn notice(&self, notice: Notice) {
        // A test that has ended takes no more notices.
        _ = self.0.send(notice);
    }
}

/// The first GPU; none where there is none.
pub(crate) fn gpu() -> Option<Gpu> {
    device(0)
}

/// The GPU with this number; none where there is none.
pub(crate) fn device(ordinal: u32) -> Option<Gpu> {
    match open(ordinal) {
        Ok(gpu) => Some(gpu),
        Err(Error::NoDriver { .. } | Error::NoDevice { .. }) => {
            println!("no CUDA device {ordinal}: not run here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Held by tests that take much of the GPU's memory, and by those that start another process on it: a new context needs
/// half a gibibyte.
pub(crate) fn hold_memory() -> impl Drop {
    static MEMORY: Mutex<()> = Mutex::new(());
    MEMORY.lock()
}

/// Runs an ignored test in a process of its own. Needed by tests that look at a kernel while it runs: while another
/// test loads or unloads a module, the driver waits for every running kernel of the process, and launches wait with it.
pub(crate) fn in_a_child(test: &str) {
    if gpu().is_none() {
        return;
    }
    let _held = hold_memory();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.contains("1 passed"), "{test}");
}

pub(crate) fn open(ordinal: u32) -> Result<Gpu> {
    let (sender, notices) = channel();
    let backend = CudaProvider::new().open(ordinal, Arc::new(Sink(sender)))?;
    Ok(Gpu { backend, notices, ids: AtomicU64::new(1), numbers: Mutex::default() })
}

/// Waits until a condition holds, for at most this long. Returns whether it does.
pub(crate) fn eventually(most: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < most {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    holds()
}

impl Gpu {
    fn id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn stream(&self) -> StreamId {
        let id = StreamId(self.id());
        self.control(Control::CreateStream { id, priority: 0 }).unwrap();
        id
    }

    pub(crate) fn control(&self, control: Control) -> Result<()> {
        // SAFETY: no test uses an object after it gave it up.
        unsafe { self.backend.control(control) }
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn request(&self, request: Request) -> Result<Reply> {
        let (sender, reply) = channel();
        let answer = Answer::new(move |reply| _ = sender.send(reply));
        self.backend.request(request, answer);
        reply.recv_timeout(PATIENCE).expect("a reply")
    }

    /// The bytes that the backend's allocations have.
    pub(crate) fn memory_in_use(&self) -> u64 {
        match self.request(Request::Memory).unwrap() {
            Reply::Memory(memory) => memory.used,
            other => panic!("{other:?}"),
        }
    }

    /// Takes the next number of a stream, if `send` succeeds.
    pub(crate) fn number(
        &self,
        stream: StreamId,
        send: impl FnOnce(Ticket) -> Result<()>,
    ) -> Result<Ticket> {
        let mut numbers = self.numbers.lock();
        let last = numbers.entry(stream).or_default();
        let ticket = Ticket { stream, number: *last + 1 };
        send(ticket)?;
        *last += 1;
        Ok(ticket)
    }

    /// The last submission of a stream.
    pub(crate) fn last(&self, stream: StreamId) -> Ticket {
        let number = self.numbers.lock().get(&stream).copied().unwrap_or_default();
        Ticket { stream, number }
    }

    pub(crate) fn run(&self, stream: StreamId, work: Work<'_>) -> Result<Ticket> {
        self.run_after(stream, &[], work, &[])
    }

    pub(crate) fn run_after(
        &self,
        stream: StreamId,
        after: &[Ticket],
        work: Work<'_>,
        host: &[Arc<HostBlock>],
    ) -> Result<Ticket> {
        self.number(stream, |ticket| {
            // SAFETY: each test uses its memory on one stream at a time, or orders its streams, and keeps its blocks.
            unsafe { self.backend.submit(&Submission { ticket, after, work: &work }, host) }
        })
    }

    pub(crate) fn try_alloc(&self, stream: StreamId, id: AllocId, bytes: u64) -> Result<Ticket> {
        self.number(stream, |at| self.control(Control::Allocate { id, bytes, at }))
    }

    pub(crate) fn alloc(&self, stream: StreamId, bytes: u64) -> AllocId {
        let id = AllocId(self.id());
        self.try_alloc(stream, id, bytes).unwrap();
        id
    }

    pub(crate) fn free(&self, stream: StreamId, id: AllocId) {
        self.control(Control::Free { id, stream, after: Vec::new() }).unwrap();
    }

    /// A new allocation that holds `words`.
    pub(crate) fn upload(&self, stream: StreamId, words: &[u32]) -> AllocId {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let alloc = self.alloc(stream, bytes.len() as u64);
        let mut block = self.backend.host_block(bytes.len()).unwrap();
        block.bytes_mut().copy_from_slice(bytes);
        let block = Arc::new(block);
        let from = HostRegion { block: block.id(), offset: 0 };
        let work = Work::Upload { from, to: start(alloc), bytes: bytes.len() as u64 };
        self.run_after(stream, &[], work, std::slice::from_ref(&block)).unwrap();
        self.sync(stream).unwrap(); // the block lives until here
        alloc
    }

    /// The contents of an allocation once the stream has run everything.
    pub(crate) fn download(&self, stream: StreamId, alloc: AllocId, words: usize) -> Vec<u32> {
        let block = Arc::new(self.backend.host_block(words * 4).unwrap());
        let to = HostRegion { block: block.id(), offset: 0 };
        let work = Work::Download { from: start(alloc), to, bytes: words as u64 * 4 };
        self.run_after(stream, &[], work, std::slice::from_ref(&block)).unwrap();
        self.sync(stream).unwrap();
        let mut block: HostBlock = Arc::into_inner(block).unwrap();
        bytemuck::cast_slice(block.bytes()).to_vec()
    }

    /// As the backend's.
    pub(crate) fn peek(&self, stream: StreamId) -> Result<u64> {
        // SAFETY: the tests retire streams on the thread that calls this.
        unsafe { self.backend.peek(stream) }
    }

    /// As the backend's.
    pub(crate) fn block_until(&self, ticket: Ticket) -> Result<()> {
        // SAFETY: as for `peek`.
        unsafe { self.backend.block_until(ticket) }
    }

    /// Blocks until a stream has run everything.
    pub(crate) fn sync(&self, stream: StreamId) -> Result<()> {
        self.block_until(self.last(stream))
    }

    /// Loads a module. Returns its id, the largest block of each kernel, and the compiler's log.
    pub(crate) fn try_load(&self, ptx: &str) -> Result<(ModuleId, Vec<u32>, String)> {
        let id = ModuleId(self.id());
        let image = ModuleImage::Ptx(ptx.into());
        self.control(Control::LoadModule { id, image })?;
        match self.request(Request::Loaded { module: id })? {
            Reply::Loaded { max_threads, log, .. } => Ok((id, max_threads, log)),
            other => panic!("{other:?}"),
        }
    }

    /// Loads a module of one kernel.
    pub(crate) fn kernel(&self, ptx: &str) -> FunctionId {
        FunctionId { module: self.try_load(ptx).unwrap().0, entry: 0 }
    }

    /// Launches with parameters of `params`, and the addresses of allocations at some of its bytes.
    pub(crate) fn launch(
        &self,
        stream: StreamId,
        function: FunctionId,
        config: LaunchConfig,
        params: &[u8],
        addresses: &[(u32, AllocId)],
    ) -> Result<Ticket> {
        let relocation =
            |&(at, alloc)| Relocation { at, region: start(alloc), bytes: 0, access: Access::Write };
        let relocations: Vec<_> = addresses.iter().map(relocation).collect();
        let (params, relocations) = (params.into(), relocations.into());
        self.run(
            stream,
            Work::Launch(Launch {
                function,
                config,
                params,
                relocations,
                variables: Default::default(),
            }),
        )
    }

    pub(crate) fn want(&self, ticket: Ticket) -> Result<()> {
        self.control(Control::Want { ticket })
    }

    pub(crate) fn notice(&self) -> Notice {
        self.notices.recv_timeout(PATIENCE).expect("a notice")
    }

    /// The next notice, which has to report progress: the stream and the number.
    pub(crate) fn progress(&self) -> Ticket {
        match self.notice() {
            Notice::Progress { stream, accepted, complete } => {
                assert_eq!(accepted, complete);
                Ticket { stream, number: complete }
            }
            other => panic!("{other:?}"),
        }
    }

    /// Waits for progress that covers a ticket.
    pub(crate) fn progress_to(&self, ticket: Ticket) {
        loop {
            let progress = self.progress();
            if progress.stream == ticket.stream && progress.number >= ticket.number {
                return;
            }
        }
    }

    pub(crate) fn no_notice_within(&self, time: Duration) {
        assert_eq!(self.notices.recv_timeout(time), Err(RecvTimeoutError::Timeout));
    }

    /// Closes the backend as a client does that goes away.
    pub(crate) fn close(self, retained: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {
        self.backend.close(retained);
    }
}

/// The first byte of an allocation.
pub(crate) fn start(alloc: AllocId) -> Region {
    Region { alloc, offset: 0 }
}
