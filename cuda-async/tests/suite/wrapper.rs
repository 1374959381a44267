//! A backend around another one. It counts live host blocks, and misbehaves on request.

use std::{
    any::Any,
    ptr::NonNull,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use cuda_async::{Device, Error, Result, cuda_core::Feature};
use cuda_core::{
    Backend, DeviceInfo, NoticeSink, Provider, Ticket,
    protocol::{
        Answer, Capabilities, Control, Foreign, HostBlock, Reply, Request, StreamId, Submission,
    },
};

/// The state that a wrapped device and its test share.
#[derive(Default)]
pub struct Watched {
    /// In place of those of the device, if they are set before it is opened.
    pub capabilities: OnceLock<Capabilities>,
    live: AtomicUsize,
    peak: AtomicUsize,
    /// The number of modules that were loaded.
    pub loads: AtomicUsize,
    /// The number of modules that were unloaded.
    pub unloads: AtomicUsize,
    /// The number of allocations that the device was asked for.
    pub allocations: AtomicUsize,
    /// The number of coming [`Control::Want`]s that are refused.
    pub refused_wants: AtomicUsize,
    /// Whether every host block has 4096 bytes.
    pub short_blocks: AtomicBool,
    /// Whether the device says that it reaches every other one. It refuses every copy from another one.
    pub reaches_all: AtomicBool,
    on_submit: Mutex<Option<OnSubmit>>,
    /// The tickets that were submitted and asked for, in order.
    log: Mutex<Vec<Logged>>,
    /// The streams and the tickets that frees came after, in order.
    frees: Mutex<Vec<(StreamId, Vec<Ticket>)>>,
}

/// A call of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logged {
    Submitted(Ticket),
    Wanted(Ticket),
}

type OnSubmit = Arc<dyn Fn(&Submission<'_>) + Send + Sync>;

impl Watched {
    /// The number of host blocks that are not dropped.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }

    /// The largest number of live host blocks so far.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }

    /// Calls this before each submission reaches the device.
    pub fn on_submit(&self, call: impl Fn(&Submission<'_>) + Send + Sync + 'static) {
        *self.on_submit.lock().unwrap() = Some(Arc::new(call));
    }

    /// The submissions and the wants so far.
    pub fn log(&self) -> Vec<Logged> {
        self.log.lock().unwrap().clone()
    }

    /// The streams whose order the frees followed, and the tickets that they came after.
    pub fn frees(&self) -> Vec<(StreamId, Vec<Ticket>)> {
        self.frees.lock().unwrap().clone()
    }

    /// Waits until no host block is live, and returns the time that it took.
    pub fn all_dropped(&self) -> Duration {
        let start = Instant::now();
        while self.live() > 0 {
            let live = self.live();
            assert!(start.elapsed() < Duration::from_secs(20), "{live} host blocks stay live");
            std::thread::sleep(Duration::from_millis(1));
        }
        start.elapsed()
    }
}

/// Opens wrapped devices.
#[derive(Clone)]
pub struct WrapperProvider {
    inner: Arc<dyn Provider>,
    pub watched: Arc<Watched>,
}

impl WrapperProvider {
    pub fn new(inner: impl Provider + 'static) -> Self {
        Self { inner: Arc::new(inner), watched: Arc::default() }
    }

    pub fn open_device(&self) -> Device {
        Device::open(self, 0).unwrap()
    }
}

// SAFETY: the wrapper forwards everything to a backend that keeps the rules, or refuses it.
unsafe impl Provider for WrapperProvider {
    fn scheme(&self) -> &'static str {
        self.inner.scheme()
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.inner.devices()
    }

    fn open(&self, ordinal: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        let inner = self.inner.open(ordinal, notices)?;
        Ok(Arc::new(Wrapper { inner, watched: self.watched.clone() }))
    }
}

/// The same backend with other capabilities.
pub fn with_capabilities(inner: Arc<dyn Backend>, capabilities: Capabilities) -> Arc<dyn Backend> {
    let watched = Watched { capabilities: OnceLock::from(capabilities), ..Watched::default() };
    Arc::new(Wrapper { inner, watched: Arc::new(watched) })
}

struct Wrapper {
    inner: Arc<dyn Backend>,
    watched: Arc<Watched>,
}

/// Frees a block by dropping it.
struct Counted {
    block: Option<HostBlock>,
    watched: Arc<Watched>,
}

impl Counted {
    fn free(&mut self, _: NonNull<u8>) {
        if self.block.take().is_some() {
            self.watched.live.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

// SAFETY: the wrapper forwards everything to a backend that keeps the rules, or refuses it. Short blocks break the rule
// about lengths on purpose.
unsafe impl Backend for Wrapper {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.watched.capabilities.get().unwrap_or_else(|| self.inner.capabilities())
    }

    unsafe fn submit(&self, submission: &Submission<'_>, host: &[Arc<HostBlock>]) -> Result<()> {
        let on_submit = self.watched.on_submit.lock().unwrap().clone();
        if let Some(call) = on_submit {
            call(submission);
        }
        self.watched.log.lock().unwrap().push(Logged::Submitted(submission.ticket));
        // SAFETY: the caller keeps the rules.
        unsafe { self.inner.submit(submission, host) }
    }

    unsafe fn control(&self, control: Control) -> Result<()> {
        if let Control::Want { ticket } = control {
            self.watched.log.lock().unwrap().push(Logged::Wanted(ticket));
        }
        match &control {
            Control::Free { stream, after, .. } => {
                self.watched.frees.lock().unwrap().push((*stream, after.clone()));
            }
            Control::LoadModule { .. } => _ = self.watched.loads.fetch_add(1, Ordering::SeqCst),
            Control::Allocate { .. } | Control::AllocateIn { .. } => {
                self.watched.allocations.fetch_add(1, Ordering::SeqCst);
            }
            Control::UnloadModule { .. } => _ = self.watched.unloads.fetch_add(1, Ordering::SeqCst),
            _ => {}
        }
        let less = |left: usize| left.checked_sub(1);
        let left = &self.watched.refused_wants;
        if matches!(control, Control::Want { .. })
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
        {
            return Err(Error::unsupported(Feature::Request, "a test"));
        }
        if matches!(control, Control::Receive { .. }) {
            return Err(Error::unsupported(Feature::PeerCopy, "a test"));
        }
        // SAFETY: the caller keeps the rules.
        unsafe { self.inner.control(control) }
    }

    fn request(&self, request: Request, answer: Answer) {
        let reaches_all = self.watched.reaches_all.load(Ordering::SeqCst);
        match request {
            Request::Reach { .. } if reaches_all => answer.give(Ok(Reply::Reached(true))),
            request => self.inner.request(request, answer),
        }
    }

    unsafe fn peek(&self, stream: StreamId) -> Result<u64> {
        // SAFETY: the caller keeps the rules.
        unsafe { self.inner.peek(stream) }
    }

    unsafe fn block_until(&self, ticket: Ticket) -> Result<()> {
        // SAFETY: the caller keeps the rules.
        unsafe { self.inner.block_until(ticket) }
    }

    fn host_block(&self, bytes: usize) -> Result<HostBlock> {
        let short = self.watched.short_blocks.load(Ordering::SeqCst);
        let block = self.inner.host_block(if short { 4096 } else { bytes })?;
        let live = self.watched.live.fetch_add(1, Ordering::SeqCst) + 1;
        self.watched.peak.fetch_max(live, Ordering::SeqCst);
        let start = NonNull::new(block.as_ptr()).unwrap();
        let len = block.len();
        let mut counted = Counted { block: Some(block), watched: self.watched.clone() };
        // SAFETY: the memory is that of a block that lives until the new one is dropped.
        Ok(unsafe { HostBlock::from_raw(start, len, move |start| counted.free(start)) })
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        self.inner.foreign()
    }

    fn close(&self, retained: Vec<(Ticket, Box<dyn Any + Send + Sync>)>) {
        self.inner.close(retained);
    }
}
