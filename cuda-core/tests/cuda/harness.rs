//! A device under test, with names for what is made on it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::Duration,
};

use parking_lot::Mutex;

use cuda_core::{
    AllocId, Backend, Command, Error, EventId, FunctionId, HostBlock, HostRegion, Launch,
    LaunchConfig, ModuleId, ModuleImage, ModuleInfo, Notice, NoticeSink, Provider, Region,
    Relocation, Reply, Request, Result, StreamId, cuda::CudaProvider,
};

/// Longer than any notice takes, the one of a fault included.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Gpu {
    pub(crate) backend: Arc<dyn Backend>,
    notices: Receiver<Notice>,
    ids: AtomicU64,
}

struct Sink(Sender<Notice>);

impl NoticeSink for Sink {
    fn notice(&self, notice: Notice) {
        // A test that has ended takes none any more.
        _ = self.0.send(notice);
    }
}

/// The first GPU; none where there is none.
pub(crate) fn gpu() -> Option<Gpu> {
    match open() {
        Ok(gpu) => Some(gpu),
        Err(Error::NoDriver { .. } | Error::NoDevice { .. }) => {
            println!("no CUDA device: not run here");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Held by tests that take much of the GPU's memory and by those that start another process on it: a new
/// context needs half a gibibyte.
pub(crate) fn hold_memory() -> impl Drop {
    static MEMORY: Mutex<()> = Mutex::new(());
    MEMORY.lock()
}

/// Runs an ignored test in a process of its own.
pub(crate) fn in_a_child(test: &str) {
    if gpu().is_none() {
        return;
    }
    let _held = hold_memory();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{test}");
}

pub(crate) fn open() -> Result<Gpu> {
    let (sender, notices) = channel();
    let backend = CudaProvider::new().open(0, Arc::new(Sink(sender)))?;
    Ok(Gpu { backend, notices, ids: AtomicU64::new(1) })
}

impl Gpu {
    fn id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn stream(&self) -> StreamId {
        let id = StreamId(self.id());
        self.backend.request(Request::CreateStream { id, priority: 0 }).unwrap();
        id
    }

    pub(crate) fn event(&self) -> EventId {
        EventId(self.id())
    }

    pub(crate) fn run(&self, stream: StreamId, command: Command<'_>) -> Result<()> {
        // SAFETY: each test uses its memory on one stream at a time, or orders its streams.
        unsafe { self.backend.enqueue(stream, command, &[]) }
    }

    pub(crate) fn alloc(&self, stream: StreamId, bytes: u64) -> AllocId {
        let id = AllocId(self.id());
        self.run(stream, Command::Alloc { id, bytes }).unwrap();
        id
    }

    pub(crate) fn free(&self, stream: StreamId, id: AllocId) {
        self.run(stream, Command::Free { id }).unwrap();
    }

    /// A new allocation that holds `words`.
    pub(crate) fn upload(&self, stream: StreamId, words: &[u32]) -> AllocId {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let alloc = self.alloc(stream, bytes.len() as u64);
        let mut block = self.backend.host_block(bytes.len()).unwrap();
        block.bytes_mut().copy_from_slice(bytes);
        let block = Arc::new(block);
        let from = HostRegion { block: block.id(), offset: 0 };
        let to = Region { alloc, offset: 0 };
        let command = Command::Upload { from, to, bytes: bytes.len() as u64 };
        // SAFETY: the block is kept until the stream is synchronised.
        unsafe { self.backend.enqueue(stream, command, std::slice::from_ref(&block)) }.unwrap();
        self.sync(stream).unwrap(); // the block lives until here
        alloc
    }

    /// What an allocation holds once the stream has run everything.
    pub(crate) fn download(&self, stream: StreamId, alloc: AllocId, words: usize) -> Vec<u32> {
        let block = Arc::new(self.backend.host_block(words * 4).unwrap());
        let to = HostRegion { block: block.id(), offset: 0 };
        let from = Region { alloc, offset: 0 };
        let command = Command::Download { from, to, bytes: words as u64 * 4 };
        // SAFETY: the block is kept until the stream is synchronised.
        unsafe { self.backend.enqueue(stream, command, std::slice::from_ref(&block)) }.unwrap();
        self.sync(stream).unwrap();
        let mut block: HostBlock = Arc::into_inner(block).unwrap();
        bytemuck::cast_slice(block.bytes()).to_vec()
    }

    pub(crate) fn sync(&self, stream: StreamId) -> Result<()> {
        self.backend.request(Request::Synchronize { stream }).map(drop)
    }

    pub(crate) fn try_load(&self, ptx: &str) -> Result<(ModuleId, ModuleInfo)> {
        let id = ModuleId(self.id());
        let image = ModuleImage::Ptx(ptx.into());
        match self.backend.request(Request::LoadModule { id, image })? {
            Reply::Module(info) => Ok((id, info)),
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
    ) -> Result<()> {
        let relocations: Vec<_> = addresses
            .iter()
            .map(|&(at, alloc)| Relocation { at, region: Region { alloc, offset: 0 } })
            .collect();
        let launch =
            Launch { function, config, params: params.into(), relocations: relocations.into() };
        self.run(stream, Command::Launch(launch))
    }

    pub(crate) fn notify(&self, stream: StreamId, token: u64) {
        self.run(stream, Command::Notify { token }).unwrap();
    }

    pub(crate) fn notice(&self) -> Notice {
        self.notices.recv_timeout(PATIENCE).expect("a notice")
    }

    pub(crate) fn no_notice_within(&self, time: Duration) {
        assert_eq!(self.notices.recv_timeout(time), Err(RecvTimeoutError::Timeout));
    }
}
