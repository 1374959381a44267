//! The backend from outside: commands in, notices out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

mod lost;
mod memory;
mod streams;
mod threads;
mod timing;

use std::sync::{
    Arc, Mutex,
    mpsc::{Receiver, Sender, channel},
};

use cuda_core::{
    AllocId, Backend, Command, Error, EventId, FaultKind, FunctionId, HostBlock, HostRegion,
    Launch, LaunchConfig, ModuleId, ModuleImage, Notice, NoticeSink, Pattern, Provider, Region,
    Relocation, Reply, Request, StreamId,
};
use cuda_cpu::{CpuOptions, CpuProvider, Timing};

const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry wrong(.param .u64 flag) { trap; ret; }
.visible .entry short(.param .u64 flag) { ret; }
.visible .entry spin(.param .u64 flag)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [flag];
L:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra L;
    ret;
}
";
const WRONG: u32 = 0;
const SHORT: u32 = 1;
const SPIN: u32 = 2;

/// The notice with this token panics.
const PANIC: u64 = 666;
/// The notice with this token blocks until the test lets go.
const BLOCK: u64 = 777;

struct Sink {
    notices: Mutex<Sender<Notice>>,
    go: Mutex<Receiver<()>>,
}

impl NoticeSink for Sink {
    fn notice(&self, notice: Notice) {
        match notice.token {
            PANIC => panic!("a waker that panics"),
            BLOCK => _ = self.go.lock().unwrap().recv(),
            _ => _ = self.notices.lock().unwrap().send(notice),
        }
    }
}

struct Device {
    backend: Arc<dyn Backend>,
    notices: Receiver<Notice>,
    go: Sender<()>,
}

const A: StreamId = StreamId(1);
const B: StreamId = StreamId(2);
const FLAG: AllocId = AllocId(1);

impl Device {
    /// With two streams and a flag that is zero.
    fn new(workers: usize) -> Self {
        let mut options = CpuOptions::default();
        options.workers = Some(workers);
        Self::with(options)
    }

    fn with(mut options: CpuOptions) -> Self {
        let (send, notices) = channel();
        let (go, wait) = channel();
        let sink = Arc::new(Sink { notices: Mutex::new(send), go: Mutex::new(wait) });
        options.memory = options.memory.or(Some(1 << 30));
        let backend = CpuProvider::new(options).open(0, sink).unwrap();
        let device = Self { backend, notices, go };
        for id in [A, B] {
            device.request(Request::CreateStream { id, priority: 0 }).unwrap();
        }
        let image = ModuleImage::Ptx(PTX.into());
        device.request(Request::LoadModule { id: ModuleId(1), image }).unwrap();
        device.put(A, Command::Alloc { id: FLAG, bytes: 4 }).unwrap();
        device.fill(A, 0).unwrap();
        device.synchronize(A).unwrap();
        device
    }

    fn put(&self, stream: StreamId, command: Command<'_>) -> Result<(), Error> {
        self.put_with(stream, command, &[])
    }

    fn put_with(
        &self,
        stream: StreamId,
        command: Command<'_>,
        host: &[Arc<HostBlock>],
    ) -> Result<(), Error> {
        // SAFETY: the tests touch no block that a command names before its stream has passed it, and this
        // device only races, without undefined behaviour, where streams share memory.
        unsafe { self.backend.enqueue(stream, command, host) }
    }

    fn request(&self, request: Request) -> Result<Reply, Error> {
        self.backend.request(request)
    }

    fn synchronize(&self, stream: StreamId) -> Result<Reply, Error> {
        self.request(Request::Synchronize { stream })
    }

    fn fill(&self, stream: StreamId, value: u32) -> Result<(), Error> {
        let to = Region { alloc: FLAG, offset: 0 };
        self.put(stream, Command::Fill { to, pattern: Pattern::Word(value), count: 1 })
    }

    fn launch(&self, stream: StreamId, entry: u32, blocks: u32) -> Result<(), Error> {
        let flag = [Relocation { at: 0, region: Region { alloc: FLAG, offset: 0 } }];
        let launch = Launch {
            function: FunctionId { module: ModuleId(1), entry },
            config: LaunchConfig::new(blocks, 32),
            params: vec![0; 8].into(),
            relocations: flag.to_vec().into(),
        };
        self.put(stream, Command::Launch(launch))
    }

    fn flag(&self) -> u32 {
        let block = Arc::new(HostBlock::heap(4).unwrap());
        let to = HostRegion { block: block.id(), offset: 0 };
        let from = Region { alloc: FLAG, offset: 0 };
        let host = [block.clone()];
        self.put_with(B, Command::Download { from, to, bytes: 4 }, &host).unwrap();
        self.synchronize(B).unwrap();
        // SAFETY: the download has run.
        u32::from_ne_bytes(unsafe { block.shared_bytes() }.try_into().unwrap())
    }

    /// Holds a stream at this point until what is given back is dropped, or sent to.
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
            // A stream that is faster than the return from `upload` leaves the last hold to this thread.
            if is_missed.try_recv().is_err() {
                return go;
            }
        }
    }

    /// Uploads a block to the flag, of which the stream has the last hold.
    fn upload(&self, stream: StreamId, block: HostBlock) {
        let from = HostRegion { block: block.id(), offset: 0 };
        let to = Region { alloc: FLAG, offset: 0 };
        let upload = Command::Upload { from, to, bytes: 4 };
        self.put_with(stream, upload, &[Arc::new(block)]).unwrap();
    }

    fn used(&self) -> u64 {
        let Reply::Memory(memory) = self.request(Request::Memory).unwrap() else { panic!() };
        memory.used
    }
}

fn is_lost_by(error: &Error, kind: FaultKind) -> bool {
    matches!(error, Error::Fault(fault) if fault.kind == kind)
}

/// 64 zeroed and aligned bytes that are never freed.
fn leaked() -> std::ptr::NonNull<u8> {
    let bytes = Box::leak(Box::new([0_u64; 16]));
    let start = std::ptr::NonNull::from(bytes).cast::<u8>();
    start.map_addr(|a| a.checked_add(a.get().wrapping_neg() % 64).unwrap())
}
