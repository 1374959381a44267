//! Devices: opened once, shared by everything on them.

use std::{
    any::Any,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    Backend, DeviceInfo, Element, Error, MemoryInfo, Module, ModuleId, ModuleImage, PinnedBuffer,
    Provider, Reply, Request, Result, Stream, StreamId,
    event_pool::EventPool,
    host_pool::HostPool,
    memory_waiter::{MemoryWaiter, MemoryWaiters},
    peer::Peers,
    progress::Woken,
    reclaim::Reclaim,
    spare_streams::SpareStreams,
    stream::OnDrop,
    stream_state::{StreamState, Streams},
    sync::Mutex,
};

/// A device: a GPU, the CPU device, or one far away. Clones are the same device.
#[derive(Clone)]
pub struct Device(Arc<DeviceInner>);

pub(crate) struct DeviceInner {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) streams: Arc<Streams>,
    /// Where memory is freed whose streams are gone.
    pub(crate) housekeeping: Arc<StreamState>,
    /// Streams that were lent and came back.
    pub(crate) spare_streams: SpareStreams,
    pub(crate) events: EventPool,
    pub(crate) reclaim: Reclaim,
    pub(crate) host: Arc<HostPool>,
    pub(crate) memory_waiters: MemoryWaiters,
    pub(crate) peers: Peers,
    /// Held by a reset, and by whoever makes a stream.
    resetting: Mutex<()>,
    ids: AtomicU64,
    attachment: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// The name of a device's own stream; those that are asked for count on from here.
const HOUSEKEEPING: StreamId = StreamId(1);

impl Device {
    /// Opens a device of `provider`. Every call makes a device of its own, with its own streams and memory, also
    /// where the address is the same: what one made cannot be used with the other ([`Error::WrongDevice`]).
    /// `cuda_async::open` gives the same one every time.
    ///
    /// # Errors
    /// What [`Provider::open`] says.
    pub fn open(provider: &dyn Provider, ordinal: u32) -> Result<Self> {
        let streams = Arc::new(Streams::default());
        let backend = provider.open(ordinal, streams.clone())?;
        backend.request(Request::CreateStream { id: HOUSEKEEPING, priority: 0 })?;
        let housekeeping = StreamState::new(HOUSEKEEPING, 0);
        streams.insert(housekeeping.clone());
        let inner = Arc::new(DeviceInner {
            backend,
            streams: streams.clone(),
            housekeeping,
            spare_streams: SpareStreams::default(),
            events: EventPool::default(),
            reclaim: Reclaim::default(),
            host: Arc::default(),
            memory_waiters: MemoryWaiters::default(),
            peers: Peers::default(),
            resetting: Mutex::default(),
            ids: AtomicU64::new(HOUSEKEEPING.0),
            attachment: OnceLock::new(),
        });
        streams.attach(Arc::downgrade(&inner));
        Ok(Self(inner))
    }

    /// What device this is.
    pub fn info(&self) -> &DeviceInfo {
        self.0.backend.info()
    }

    /// A new stream.
    ///
    /// # Errors
    /// What the backend says.
    pub fn new_stream(&self) -> Result<Stream> {
        self.new_stream_with_priority(0)
    }

    /// A new stream; lower priorities run first where the device knows them.
    ///
    /// # Errors
    /// What the backend says.
    pub fn new_stream_with_priority(&self, priority: i32) -> Result<Stream> {
        self.0.reclaim_all();
        Ok(Stream::new(self.clone(), self.0.create_stream(priority)?, OnDrop::Destroy))
    }

    /// A stream for a while, from a pool of the device's own: making one is slow. It goes back when the
    /// last clone is dropped, perhaps with work still to run.
    ///
    /// # Errors
    /// What the backend says.
    pub fn lend_stream(&self, priority: i32) -> Result<Stream> {
        self.lend(priority, self.0.spare_streams.take(priority))
    }

    /// As [`lend_stream`](Device::lend_stream), but one that is known to have nothing to run.
    ///
    /// # Errors
    /// What the backend says.
    pub fn lend_idle_stream(&self, priority: i32) -> Result<Stream> {
        self.lend(priority, self.0.spare_streams.take_idle(priority))
    }

    fn lend(&self, priority: i32, spare: Option<Arc<StreamState>>) -> Result<Stream> {
        let state = spare.map_or_else(|| self.0.create_stream(priority), Ok)?;
        Ok(Stream::new(self.clone(), state, OnDrop::Recycle))
    }

    /// What a layer above keeps with this device, made when it is first asked for. There is one; none where it is
    /// of another type.
    pub fn attachment<T: Default + Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.attachment.get_or_init(|| Box::new(T::default())).downcast_ref()
    }

    /// Compiles and loads PTX. Blocks: a GPU's compiler may take a hundred milliseconds.
    ///
    /// # Errors
    /// [`Error::InvalidPtx`], [`Error::PtxTooNew`], or [`Error::LoadFailed`] with the compiler's log.
    pub fn load_ptx(&self, ptx: &str) -> Result<Module> {
        self.0.reclaim_all();
        let id = ModuleId(self.0.next_id());
        let image = ModuleImage::Ptx(ptx.to_owned());
        match self.0.backend.request(Request::LoadModule { id, image })? {
            Reply::Module(info) => Ok(Module::new(self.clone(), id, info)),
            other => Err(unexpected(&other)),
        }
    }

    /// Memory in use and free. What was dropped is let go first, in stream order; whether it counts as used until its
    /// stream has run what came before is the backend's affair (on the CPU device it does not).
    ///
    /// # Errors
    /// What the backend says.
    pub fn memory(&self) -> Result<MemoryInfo> {
        self.0.reclaim_all();
        match self.0.backend.request(Request::Memory)? {
            Reply::Memory(info) => Ok(info),
            other => Err(unexpected(&other)),
        }
    }

    /// To be woken when memory of this device may have come back.
    pub fn memory_waiter(&self) -> MemoryWaiter {
        MemoryWaiter::new(self.clone())
    }

    /// A zeroed host buffer of `len` elements that this device copies from and to at full speed.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn pinned<T: Element>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::new(self, len)
    }

    /// As [`pinned`](Device::pinned) for a download to overwrite: what it holds before is whatever an
    /// earlier copy left there.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`].
    pub fn landing_place<T: Element>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::uninitialised(self, len)
    }

    /// Blocks until every stream of this handle has run what it has.
    ///
    /// # Errors
    /// What the first stream met that met anything.
    pub fn synchronize(&self) -> Result<()> {
        for state in self.0.streams.all() {
            self.0.synchronize(&state)?;
        }
        Ok(())
    }

    /// Brings the device back after a fault. Work that has not begun is lost, and is told; what a kernel can still
    /// finish, it does. Memory and modules stay.
    ///
    /// Blocks until the kernels that run have ended: in async code call it in `spawn_blocking`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a GPU: there a fault ends CUDA for the whole process.
    pub fn reset(&self) -> Result<()> {
        let woken = self.0.reset()?;
        drop(woken);
        self.0.reclaim_all();
        Ok(())
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    pub(crate) fn inner(&self) -> &DeviceInner {
        &self.0
    }

    /// Checks that something of `other` may be used here.
    #[inline]
    pub(crate) fn check_same(&self, what: &'static str, other: &Device) -> Result<()> {
        if self == other { Ok(()) } else { Err(self.wrong_device(what, other)) }
    }

    #[cold]
    fn wrong_device(&self, what: &'static str, other: &Device) -> Error {
        let [lives_on, used_on] = [other, self].map(|device| device.info().address.clone());
        Error::WrongDevice { what: what.into(), lives_on, used_on }
    }
}

impl DeviceInner {
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// One at a time, and no stream is made meanwhile: it would be neither lost nor spared.
    fn reset(&self) -> Result<Vec<Woken>> {
        let _resetting = self.resetting.lock();
        let streams = self.streams.all();
        // Nothing is submitted meanwhile, so what is published is what is lost. Nobody else ever holds two.
        let _orders: Vec<_> = streams.iter().map(|state| state.order.lock()).collect();
        self.streams.reset_begins();
        match self.backend.request(Request::Reset) {
            Ok(Reply::Reset { lost }) => Ok(self.streams.recover_all(&streams, lost.as_ref())),
            other => {
                self.streams.reset_failed();
                Err(other.map_or_else(|error| error, |reply| unexpected(&reply)))
            }
        }
    }

    fn create_stream(&self, priority: i32) -> Result<Arc<StreamState>> {
        let _no_reset = self.resetting.lock();
        let id = StreamId(self.next_id());
        self.backend.request(Request::CreateStream { id, priority })?;
        let state = StreamState::new(id, priority);
        self.streams.insert(state.clone());
        Ok(state)
    }

    pub(crate) fn synchronize(&self, state: &StreamState) -> Result<()> {
        let last = state.published();
        if let Some(outcome) = state.progress.outcome(last) {
            return outcome;
        }
        let resets = self.streams.resets();
        self.ask(Request::Synchronize { stream: state.id })?;
        if !self.streams.not_reset_since(resets) {
            // What was synchronised may be what a reset has dropped: it knows.
            drop(self.resetting.lock());
            return state.progress.outcome(last).unwrap_or(Ok(()));
        }
        state.advance(last);
        self.reclaim_all();
        Ok(())
    }

    /// Whether the stream has run everything that it had when it was asked. Does not block.
    pub(crate) fn query(&self, state: &StreamState) -> Result<bool> {
        let (last, resets) = (state.published(), self.streams.resets());
        match self.ask(Request::Query { stream: state.id })? {
            Reply::Idle(idle) => {
                let idle = idle && self.streams.not_reset_since(resets);
                if idle {
                    state.advance(last);
                }
                Ok(idle)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// A request whose failure may be the device's.
    fn ask(&self, request: Request) -> Result<Reply> {
        let resets = self.streams.resets();
        self.backend.request(request).inspect_err(|error| {
            if error.is_sticky() {
                self.streams.fail_all(error, resets);
            }
        })
    }
}

pub(crate) fn unexpected(reply: &Reply) -> Error {
    Error::Host {
        what: "the backend gave an answer of another kind".into(),
        detail: format!("{reply:?}"),
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.info().address)
    }
}
