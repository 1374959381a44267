//! The backend from outside: commands in, notices out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

use std::sync::{
    Arc, Mutex,
    mpsc::{Receiver, Sender, channel},
};

use cuda_core::{
    AllocId, Backend, Command, Error, EventId, FaultKind, FunctionId, HostBlock, HostRegion,
    Launch, LaunchConfig, ModuleId, ModuleImage, Notice, NoticeSink, Pattern, Provider, Region,
    Relocation, Reply, Request, StreamId,
};
use cuda_cpu::{CpuOptions, CpuProvider};

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
/// The notice with this token holds its stream until the test lets go.
const HOLD: u64 = 777;

struct Sink {
    notices: Mutex<Sender<Notice>>,
    go: Mutex<Receiver<()>>,
}

impl NoticeSink for Sink {
    fn notice(&self, notice: Notice) {
        match notice.token {
            PANIC => panic!("a waker that panics"),
            HOLD => _ = self.go.lock().unwrap().recv(),
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
        let (send, notices) = channel();
        let (go, wait) = channel();
        let sink = Arc::new(Sink { notices: Mutex::new(send), go: Mutex::new(wait) });
        let mut options = CpuOptions::default();
        options.workers = Some(workers);
        options.memory = Some(1 << 30);
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

    fn used(&self) -> u64 {
        let Reply::Memory(memory) = self.request(Request::Memory).unwrap() else { panic!() };
        memory.used
    }
}

fn is_lost_by(error: &Error, kind: FaultKind) -> bool {
    matches!(error, Error::Fault(fault) if fault.kind == kind)
}

#[test]
fn a_lost_device_gives_memory_back() {
    let d = Device::new(2);
    d.launch(A, WRONG, 1).unwrap();
    assert!(is_lost_by(&d.synchronize(A).unwrap_err(), FaultKind::Trap));
    assert!(d.fill(A, 1).is_err());
    d.put(A, Command::Record { event: EventId(1) }).unwrap();
    d.put(B, Command::Wait { event: EventId(1) }).unwrap();
    d.put(B, Command::Free { id: FLAG }).unwrap();
    d.put(B, Command::Notify { token: 5 }).unwrap();
    let notice = d.notices.recv().unwrap();
    assert_eq!((notice.stream, notice.token), (B, 5));
    assert!(is_lost_by(&notice.status.unwrap_err(), FaultKind::Trap));
    assert_eq!(d.used(), 0);
    d.request(Request::Reset).unwrap();
    d.put(A, Command::Alloc { id: FLAG, bytes: 4 }).unwrap();
    d.launch(A, SHORT, 3).unwrap();
    d.synchronize(A).unwrap();
}

#[test]
fn what_was_enqueued_before_a_reset_does_not_run_after_it() {
    let d = Device::new(2);
    d.put(A, Command::Notify { token: HOLD }).unwrap();
    d.fill(A, 9).unwrap();
    d.put(A, Command::Notify { token: 1 }).unwrap();
    d.launch(B, WRONG, 1).unwrap();
    d.synchronize(B).unwrap_err();
    d.request(Request::DestroyStream { id: A }).unwrap();
    std::thread::scope(|scope| {
        let backend = &d.backend;
        let reset = scope.spawn(|| backend.request(Request::Reset).unwrap());
        // Long enough for a reset that does not wait for the destroyed stream.
        std::thread::sleep(std::time::Duration::from_millis(50));
        d.go.send(()).unwrap();
        reset.join().unwrap();
    });
    assert!(d.notices.recv().unwrap().status.is_err());
    assert_eq!(d.flag(), 0);
}

#[test]
fn a_destroyed_stream_is_unknown() {
    let d = Device::new(1);
    d.request(Request::DestroyStream { id: B }).unwrap();
    let refused = d.put(B, Command::Record { event: EventId(1) });
    assert!(matches!(refused, Err(Error::OutOfRange { .. })));
    assert!(matches!(d.request(Request::Query { stream: B }), Err(Error::OutOfRange { .. })));
}

#[test]
fn a_sink_that_panics_stops_nothing() {
    let d = Device::new(1);
    d.put(A, Command::Notify { token: PANIC }).unwrap();
    d.put(A, Command::Notify { token: 1 }).unwrap();
    assert_eq!(d.notices.recv().unwrap().token, 1);
    d.launch(A, SHORT, 1).unwrap();
    d.synchronize(A).unwrap();
}

#[test]
fn a_panic_in_work_loses_the_device() {
    let d = Device::new(1);
    let bytes = Box::leak(Box::new([0_u64; 64]));
    let start = std::ptr::NonNull::from(bytes).cast::<u8>();
    let start = start.map_addr(|a| a.checked_add(a.get().wrapping_neg() % 64).unwrap());
    // SAFETY: 64 bytes from the next aligned one on lie inside, are zeroed and are never freed.
    let block = unsafe { HostBlock::from_raw(start, 64, |_| panic!("cannot be freed")) };
    d.put(A, Command::Notify { token: HOLD }).unwrap();
    let (from, to) =
        (HostRegion { block: block.id(), offset: 0 }, Region { alloc: FLAG, offset: 0 });
    let upload = Command::Upload { from, to, bytes: 4 };
    // The stream's is the last hold on the block.
    d.put_with(A, upload, std::slice::from_ref(&Arc::new(block))).unwrap();
    d.put(A, Command::Notify { token: 1 }).unwrap();
    d.go.send(()).unwrap();
    let error = d.notices.recv().unwrap().status.unwrap_err();
    assert!(is_lost_by(&error, FaultKind::Other));
    assert!(error.to_string().contains("interpreter panicked: cannot be freed"), "{error}");
    d.request(Request::Reset).unwrap();
    d.launch(A, SHORT, 1).unwrap();
    d.synchronize(A).unwrap();
}

#[test]
fn short_kernels_overtake_long_ones() {
    let d = Device::new(2);
    const MORE: u64 = 12;
    for id in (10..10 + MORE).map(StreamId) {
        d.request(Request::CreateStream { id, priority: 0 }).unwrap();
        d.launch(id, SPIN, 4).unwrap();
    }
    for _ in 0..10 {
        d.launch(B, SHORT, 100).unwrap();
        d.synchronize(B).unwrap();
    }
    d.fill(B, 1).unwrap();
    for id in (10..10 + MORE).map(StreamId) {
        d.synchronize(id).unwrap();
    }
}
