//! The CPU device through the protocol: submissions and controls in, notices out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

mod client;
mod dead_work;
mod faults;
mod memory;
mod modules;
mod poison;
mod progress;
mod streams;
mod threads;
mod timing;

use std::sync::{
    Arc, Mutex,
    mpsc::{Receiver, Sender, channel},
};

use client::{Client, Sink};
use cuda_core::{
    Error, FaultKind, LaunchConfig, Provider, Ticket,
    protocol::{
        Access, AllocId, Control, FunctionId, HostBlock, HostRegion, Launch, ModuleId, Pattern,
        Region, Relocation, Reply, Request, StreamId, Work,
    },
};
use cuda_cpu::{CpuOptions, CpuProvider, Timing};

/// `trap` faults, `short` does nothing, `store` writes 5. `spin` writes 1 to the second word and ends when the first
/// word is not 0.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry trap(.param .u64 flag) { trap; ret; }
.visible .entry short(.param .u64 flag) { ret; }
.visible .entry spin(.param .u64 flag)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [flag];
    mov.u32 %r1, 1;
    st.volatile.global.u32 [%rd1+4], %r1;
L:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra L;
    ret;
}
.visible .entry store(.param .u64 flag)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [flag];
    mov.u32 %r1, 5;
    st.global.u32 [%rd1], %r1;
    ret;
}
";
const TRAP: u32 = 0;
const SHORT: u32 = 1;
const SPIN: u32 = 2;
const STORE: u32 = 3;

const A: StreamId = StreamId(1);
const B: StreamId = StreamId(2);
/// Two words.
const FLAG: AllocId = AllocId(1);
const FLAG_BYTES: u64 = 8;
const START: Region = Region { alloc: FLAG, offset: 0 };

/// A device with two streams and a flag that is zero. Checks at the end that its notices kept the protocol.
struct Device {
    client: Client,
    sink: Arc<Sink>,
    /// Stream and number of every report of progress.
    notices: Receiver<(StreamId, u64)>,
    go: Sender<()>,
}

impl Device {
    fn new(workers: usize) -> Self {
        let mut options = CpuOptions::default();
        options.workers = Some(workers);
        Self::with(options)
    }

    fn with(mut options: CpuOptions) -> Self {
        let (send, notices) = channel();
        let (go, wait) = channel();
        let sink = Sink::new(send, wait);
        options.memory = options.memory.or(Some(1 << 30));
        let client = Client::new(CpuProvider::new(options).open(0, sink.clone()).unwrap());
        let device = Self { client, sink, notices, go };
        [A, B].into_iter().for_each(|id| device.client.create_stream(id));
        device.client.load(ModuleId(1), PTX);
        device.allocate_flag();
        device
    }

    fn allocate_flag(&self) {
        self.client.allocate(A, FLAG, FLAG_BYTES).unwrap();
        let zero = Work::Fill { to: START, pattern: Pattern::Word(0), count: 2 };
        self.submit(A, zero).unwrap();
        self.synchronize(A).unwrap();
    }

    fn submit(&self, stream: StreamId, work: Work<'_>) -> Result<Ticket, Error> {
        self.client.submit(stream, &[], work, &[])
    }

    /// A submission that comes after `after` and does nothing else.
    fn join(&self, stream: StreamId, after: &[Ticket]) -> Ticket {
        self.client.submit(stream, after, Work::Join, &[]).unwrap()
    }

    /// Waits until a submission is complete. Returns its failure.
    fn outcome(&self, ticket: Ticket) -> Result<(), Error> {
        self.client.block_until(ticket).unwrap();
        self.sink.failure(ticket).map_or(Ok(()), Err)
    }

    /// Waits until a stream has run everything. Returns the first failure that was not returned yet.
    fn synchronize(&self, stream: StreamId) -> Result<(), Error> {
        self.client.drain(stream);
        self.sink.take_failure(stream).map_or(Ok(()), Err)
    }

    /// Asks for a report of everything that was submitted to a stream.
    fn want(&self, stream: StreamId) -> Ticket {
        let last = self.client.last(stream);
        self.client.want(last);
        last
    }

    /// Waits for the next report of progress.
    fn next_report(&self) -> Ticket {
        let (stream, number) = self.notices.recv().unwrap();
        Ticket { stream, number }
    }

    /// Writes the first word of the flag.
    fn fill(&self, stream: StreamId, value: u32) -> Result<Ticket, Error> {
        self.submit(stream, Work::Fill { to: START, pattern: Pattern::Word(value), count: 1 })
    }

    /// Launches a kernel that states the use of the first word of the flag.
    fn launch_with(
        &self,
        stream: StreamId,
        entry: u32,
        blocks: u32,
        access: Access,
    ) -> Result<Ticket, Error> {
        self.submit(stream, kernel(entry, blocks, START, access))
    }

    fn launch(&self, stream: StreamId, entry: u32, blocks: u32) -> Result<Ticket, Error> {
        self.launch_with(stream, entry, blocks, Access::Read)
    }

    /// Copies from the flag, after `after`. Returns the word, or the failure of the copy.
    fn read(&self, stream: StreamId, offset: u64, after: &[Ticket]) -> Result<u32, Error> {
        let block = Arc::new(HostBlock::heap(4).unwrap());
        let to = HostRegion { block: block.id(), offset: 0 };
        let work = Work::Download { from: Region { offset, ..START }, to, bytes: 4 };
        let ticket = self.client.submit(stream, after, work, std::slice::from_ref(&block))?;
        self.outcome(ticket)?;
        // SAFETY: the download has run.
        Ok(u32::from_ne_bytes(unsafe { block.shared_bytes() }.try_into().unwrap()))
    }

    /// The first word of the flag, read on B.
    fn flag(&self) -> u32 {
        self.read(B, 0, &[]).unwrap()
    }

    /// Holds a stream at this point until the returned sender is dropped, or sent to.
    fn hold(&self, stream: StreamId) -> Sender<()> {
        loop {
            let (go, wait) = channel::<()>();
            let (missed, is_missed) = channel();
            let held = Mutex::new((wait, missed));
            let here = std::thread::current().id();
            let drop_block = move |_| {
                let held = held.lock().unwrap();
                // This thread may also run the stream later, where it waits for it.
                if std::thread::current().id() != here || held.1.send(()).is_err() {
                    _ = held.0.recv();
                }
            };
            // SAFETY: 64 bytes that are zeroed and never freed.
            let block = unsafe { HostBlock::from_raw(leaked(), 64, drop_block) };
            self.upload(stream, block);
            // If the stream is faster than the return from `upload`, this thread drops the block.
            if is_missed.try_recv().is_err() {
                return go;
            }
        }
    }

    /// Uploads a block to the first word of the flag. The stream drops the block.
    fn upload(&self, stream: StreamId, block: HostBlock) -> Ticket {
        let from = HostRegion { block: block.id(), offset: 0 };
        let upload = Work::Upload { from, to: START, bytes: 4 };
        self.client.submit(stream, &[], upload, &[Arc::new(block)]).unwrap()
    }

    fn used(&self) -> u64 {
        let Reply::Memory(memory) = self.client.ask(Request::Memory).unwrap() else { panic!() };
        memory.used
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.sink.violations(), [""; 0]);
        }
    }
}

/// The launch of a kernel that states the use of a word.
fn kernel(entry: u32, blocks: u32, region: Region, access: Access) -> Work<'static> {
    Work::Launch(Launch {
        function: FunctionId { module: ModuleId(1), entry },
        config: LaunchConfig::new(blocks, 32),
        params: vec![0; 8].into(),
        relocations: vec![Relocation { at: 0, region, bytes: 4, access }].into(),
        variables: Default::default(),
    })
}

fn is_fault(error: &Error, kind: FaultKind) -> bool {
    matches!(error, Error::Fault(fault) if fault.kind == kind)
}

/// 64 zeroed and aligned bytes that are never freed.
fn leaked() -> std::ptr::NonNull<u8> {
    let bytes = Box::leak(Box::new([0_u64; 16]));
    let start = std::ptr::NonNull::from(bytes).cast::<u8>();
    start.map_addr(|a| a.checked_add(a.get().wrapping_neg() % 64).unwrap())
}
