//! The core of a device: its backend and everything that handles of the device share.

use std::{
    any::Any,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{
    order::timeline::Timeline,
    protocol::{
        Backend, Capabilities, Control, Error, Feature, Limit, Name, PoolId, PoolSpec, Provider,
        Quantity, Reply, Request, Result, StreamId, Ticket,
    },
    runtime::{
        host_pool::HostPool,
        loaded_modules::LoadedModules,
        memory::{DropsPools, MemoryCharge, MemoryWaiters, PoolCore, PoolCount},
        reclaim::Dropped,
        reply::Pending,
        streams::{AfterProgress, SpareStreams, Streams},
    },
    sync::{HelperThread, Mutex},
};

/// The state that all handles of one device share.
pub(crate) struct DeviceCore {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) capabilities: Capabilities,
    pub(crate) streams: Arc<Streams>,
    /// The stream that carries the free of memory if every stream that used the memory is idle.
    pub(crate) housekeeping: Arc<Timeline>,
    /// Streams that were lent and came back.
    pub(crate) spare_streams: SpareStreams,
    pub(crate) dropped: Dropped,
    pub(crate) host: Arc<HostPool>,
    pub(crate) charge: MemoryCharge,
    pub(crate) memory_waiters: MemoryWaiters,
    pub(crate) peers: Peers,
    pub(crate) pools: PoolCount,
    pub(crate) modules: LoadedModules,
    /// Whether submissions of a window are deferrable.
    pub(crate) graph_cache: AtomicBool,
    /// Runs tasks that may block, for callers inside a poll.
    pub(crate) helper: HelperThread,
    ids: AtomicU64,
    /// Held from the choice of a stream's id until the backend has it, so that the backend sees these ids rise. Held
    /// while a stream is retired too, so that the backend never sees more streams than it allows.
    pub(super) changing_streams: Mutex<()>,
    pub(crate) attachment: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// The id of the housekeeping stream. The ids that the client chooses count up from it.
const HOUSEKEEPING: StreamId = StreamId(1);

impl DeviceCore {
    pub(crate) fn open(provider: &dyn Provider, ordinal: u32) -> Result<Arc<Self>> {
        let streams = Arc::new(Streams::default());
        let backend = provider.open(ordinal, streams.clone())?;
        let mut capabilities = backend.capabilities().clone();
        // With a limit of zero no work could ever be submitted.
        capabilities.submissions_in_flight = capabilities.submissions_in_flight.max(1);
        capabilities.host_bytes_in_flight = capabilities.host_bytes_in_flight.max(1);
        // SAFETY: the control frees, retires, drops and unloads nothing.
        unsafe { backend.control(Control::CreateStream { id: HOUSEKEEPING, priority: 0 }) }?;
        let housekeeping = Timeline::new(HOUSEKEEPING, 0, capabilities.ordered_visibility);
        streams.insert(housekeeping.clone());
        let core = Arc::new(Self {
            backend,
            charge: MemoryCharge::new(capabilities.memory_quota),
            graph_cache: AtomicBool::new(capabilities.graph_cache),
            capabilities,
            streams: streams.clone(),
            housekeeping,
            spare_streams: SpareStreams::default(),
            dropped: Dropped::default(),
            host: Arc::default(),
            memory_waiters: MemoryWaiters::default(),
            peers: Peers::default(),
            pools: PoolCount::default(),
            modules: LoadedModules::default(),
            helper: HelperThread::new("cuda-helper"),
            ids: AtomicU64::new(HOUSEKEEPING.0),
            changing_streams: Mutex::default(),
            attachment: OnceLock::new(),
        });
        let device: Weak<dyn AfterProgress> = Arc::<Self>::downgrade(&core);
        streams.attach(device, core.capabilities.only_thread);
        Ok(core)
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn create_stream(&self, priority: i32) -> Result<Arc<Timeline>> {
        if !self.has_room_for_stream() {
            // Before the lock is held: this wakes tasks, which may create streams.
            self.retire_spare_streams();
        }
        let _changing = self.changing_streams.lock();
        if !self.has_room_for_stream() {
            return Err(self.too_many(Quantity::Streams, self.capabilities.streams));
        }
        let id = StreamId(self.next_id());
        // SAFETY: the control frees, retires, drops and unloads nothing.
        unsafe { self.backend.control(Control::CreateStream { id, priority }) }?;
        let timeline = Timeline::new(id, priority, self.capabilities.ordered_visibility);
        self.streams.insert(timeline.clone());
        Ok(timeline)
    }

    fn has_room_for_stream(&self) -> bool {
        self.streams.count() < self.capabilities.streams as usize
    }

    /// Retires the idle streams that no program holds.
    #[cold]
    fn retire_spare_streams(&self) {
        for id in self.spare_streams.take_all_idle() {
            self.retire_stream(id);
        }
        self.reclaim_all();
    }

    /// Returns the error for one more object than the device allows.
    #[cold]
    fn too_many(&self, quantity: Quantity, most: u32) -> Error {
        let device = format!("the device `{}`", self.backend.info().address);
        Error::out_of_range(device, quantity, u64::from(most) + 1, Limit::AtMost(most.into()))
    }

    /// Whether submissions of a window are deferrable.
    #[inline]
    pub(crate) fn has_graph_cache(&self) -> bool {
        self.graph_cache.load(Ordering::Relaxed)
    }

    /// Blocks until submission `number` of a stream is complete. The caller holds the stream, and is outside the output
    /// function of the device.
    ///
    /// # Errors
    /// The error that lost the device. [`Error::Misuse`] on the thread that alone delivers its notices. Failed
    /// submissions are no error here.
    #[inline]
    pub(crate) fn synchronize(&self, timeline: &Timeline, number: u64) -> Result<()> {
        if timeline.progress.completed() >= number {
            return Ok(());
        }
        self.streams.check_thread()?;
        // SAFETY: the caller holds a handle of the stream, so it is not retired.
        let done = unsafe { self.backend.block_until(Ticket { stream: timeline.id, number }) };
        if let Err(error) = done {
            return Err(self.lost(timeline, error));
        }
        timeline.advance(number);
        self.reclaim_after_wait();
        Ok(())
    }

    /// Updates the known progress of a stream, without blocking. The caller holds the stream.
    ///
    /// # Errors
    /// The error that lost the device.
    #[inline]
    pub(crate) fn query(&self, timeline: &Timeline) -> Result<()> {
        // SAFETY: the caller holds the stream, so it is not retired during the call.
        match unsafe { self.backend.peek(timeline.id) } {
            Ok(complete) => {
                timeline.advance(complete);
                Ok(())
            }
            Err(error) => Err(self.lost(timeline, error)),
        }
    }

    #[cold]
    fn lost(&self, timeline: &Timeline, error: Error) -> Error {
        if error.is_sticky() {
            self.streams.fail_all(&error);
        }
        timeline.progress.ended().unwrap_or(error)
    }

    /// Asks for a report of progress that covers a ticket.
    ///
    /// # Errors
    /// The error of the backend: no report will come.
    pub(crate) fn try_want(&self, ticket: Ticket) -> Result<()> {
        // SAFETY: the control frees, retires, drops and unloads nothing.
        unsafe { self.backend.control(Control::Want { ticket }) }
    }

    /// As [`try_want`](Self::try_want), but ignores the error. For a report that no caller depends on.
    pub(crate) fn want(&self, ticket: Ticket) {
        let _ = self.try_want(ticket);
    }

    /// Requests a report of progress that no caller waits for yet. Ignores errors.
    pub(crate) fn report(&self, ticket: Ticket) {
        let _ = self.backend.report(ticket);
    }

    /// Sends a request; `convert` takes the reply of the right kind.
    pub(crate) fn request<T>(
        &self,
        request: Request,
        convert: impl FnOnce(Reply) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (pending, answer) = Pending::new(self.backend.info(), &self.streams, convert);
        self.backend.request(request, answer);
        pending
    }

    /// Creates a pool. `limit` is the maximum number of bytes in use.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without pools, [`Error::OutOfRange`] beyond the maximum number of pools, or an error of
    /// the backend.
    pub(crate) fn create_pool(
        self: &Arc<Self>,
        name: Option<Name>,
        limit: u64,
        spec: PoolSpec,
    ) -> Result<Arc<PoolCore>> {
        let most = self.capabilities.pools;
        if most == 0 {
            return Err(Error::unsupported(Feature::MemoryPool, &self.backend.info().address));
        }
        if !self.pools.add(most) {
            // Pools may have been dropped meanwhile.
            self.reclaim_all();
            if !self.pools.add(most) {
                return Err(self.too_many(Quantity::MemoryPools, most));
            }
        }
        let id = PoolId(self.next_id());
        // SAFETY: the control frees, retires, drops and unloads nothing.
        let created = unsafe { self.backend.control(Control::CreatePool { id, spec }) };
        created.inspect_err(|_| self.pools.remove())?;
        let name = name.unwrap_or_else(|| format!("pool {}", id.0).into());
        let device: Weak<dyn DropsPools> = Arc::<Self>::downgrade(self);
        let is_managed = spec.is_managed && self.capabilities.managed_pools;
        Ok(PoolCore::new(id, name, limit, is_managed, device))
    }

    /// Charges an allocation: against the quota of the device, and against the limit of the pool.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    #[inline]
    pub(crate) fn charge(&self, pool: Option<&PoolCore>, bytes: u64) -> Result<()> {
        match pool {
            None => self.charge.charge(bytes),
            Some(pool) => {
                pool.charge(bytes)?;
                if pool.is_managed {
                    return Ok(());
                }
                let charged = self.charge.charge_elsewhere(bytes);
                charged.inspect_err(|_| pool.charge.refund(bytes))
            }
        }
    }

    /// Counts an allocation that was charged and made in the peak.
    #[inline]
    pub(crate) fn raise_peak(&self, pool: Option<&PoolCore>) {
        pool.map_or(&self.charge, |pool| &pool.charge).raise_peak();
    }

    /// Gives back the charge of an allocation.
    pub(crate) fn refund(&self, pool: Option<&PoolCore>, bytes: u64) {
        match pool {
            None => self.charge.refund(bytes),
            Some(pool) => {
                if !pool.is_managed {
                    self.charge.refund_elsewhere(bytes);
                }
                pool.charge.refund(bytes);
            }
        }
    }

    /// Frees the memory that this client still holds for no good reason: buffers whose last use is complete and not
    /// known to be, and dropped buffers. Waits for frees that another thread is making, but not longer than
    /// `MAX_FREEING`.
    #[cold]
    pub(crate) fn recover_memory(&self) {
        for stream in self.streams.all() {
            if stream.is_busy() {
                // A lost device shows in the next try.
                let _ = self.query(&stream);
            }
        }
        self.reclaim_all();
        self.wait_for_frees();
    }
}

impl AfterProgress for DeviceCore {
    fn after_progress(&self) {
        self.reclaim_all();
        // Work is complete, so frees that come after it may have run.
        self.memory_waiters.wake();
    }
}

impl Drop for DeviceCore {
    /// Passes the retained resources to the backend, because streams may still use them.
    fn drop(&mut self) {
        let streams = self.streams.all();
        streams
            .iter()
            .for_each(|timeline| timeline.retention.release(timeline.progress.completed()));
        let retained = streams.iter().flat_map(|timeline| timeline.retention.take(timeline.id));
        self.backend.close(retained.chain(self.take_foreign()).collect());
    }
}

/// The known replies of a device to `Reach` requests, by the address of the other device.
#[derive(Default)]
pub(crate) struct Peers(Mutex<Vec<(String, bool)>>);

impl Peers {
    /// Whether the device at `address` can be sent to, if that is known.
    pub(crate) fn known(&self, address: &str) -> Option<bool> {
        let peers = self.0.lock();
        peers.iter().find(|(known, _)| known == address).map(|(_, reached)| *reached)
    }

    pub(crate) fn learn(&self, address: String, reached: bool) {
        let mut peers = self.0.lock();
        if !peers.iter().any(|(known, _)| *known == address) {
            peers.push((address, reached));
        }
    }
}
