//! The streams of one backend, by the ids that the client chose.

use std::{collections::hash_map::Entry, sync::Arc};

use cuda_core::{
    internals::IdMap,
    protocol::{Error, ForeignOwner, GraphCacheInfo, Misuse, Result, StreamId},
};
use parking_lot::RwLock;

use super::stream::DriverStream;
use crate::{
    context::{Bound, IdCache, Primary},
    driver::api::{STREAM_NON_BLOCKING, StreamHandle},
    windows::CacheMemory,
};

/// The streams of a backend. Submissions find them through a cache, without a lock.
pub(crate) struct StreamTable {
    primary: &'static Primary,
    /// The memory of the graphs that the streams' windows have.
    cached: Arc<CacheMemory>,
    table: RwLock<IdMap<StreamId, Arc<DriverStream>>>,
    cache: IdCache,
}

impl StreamTable {
    pub(crate) fn new(primary: &'static Primary) -> Self {
        Self {
            primary,
            cached: Arc::default(),
            table: RwLock::default(),
            cache: IdCache::default(),
        }
    }

    /// The stream with this id, found without a lock and without a count.
    ///
    /// # Safety
    /// No thread retires the stream while the result is used.
    #[inline]
    pub(crate) unsafe fn get(&self, id: StreamId) -> Result<&DriverStream> {
        let found = match self.cache.get([id.0, 0]) {
            Some([address, _]) => std::ptr::with_exposed_provenance(address as usize),
            None => self.look_up(id)?,
        };
        // SAFETY: the table holds the stream, and no thread retires it while the result is used. A stream that is
        // retired is evicted from the cache before the table drops it (rule 3).
        Ok(unsafe { &*found })
    }

    #[cold]
    fn look_up(&self, id: StreamId) -> Result<*const DriverStream> {
        let table = self.table.read();
        let found = table.get(&id).ok_or_else(|| Error::no_such_object("stream", id.0))?;
        let stream = Arc::as_ptr(found);
        self.cache.insert([id.0, 0], [stream.expose_provenance() as u64, 0]);
        Ok(stream)
    }

    /// The stream with this id, held.
    #[inline]
    pub(crate) fn find(&self, id: StreamId) -> Result<Arc<DriverStream>> {
        self.table.read().get(&id).cloned().ok_or_else(|| Error::no_such_object("stream", id.0))
    }

    /// Every stream, held.
    pub(crate) fn all(&self) -> Vec<Arc<DriverStream>> {
        self.table.read().values().cloned().collect()
    }

    /// The counts of the graph cache of all streams.
    pub(crate) fn graph_cache(&self) -> GraphCacheInfo {
        let mut info = GraphCacheInfo::default();
        info.bytes = self.cached.bytes();
        self.all().iter().for_each(|stream| stream.window().add_counts(&mut info));
        info
    }

    /// Creates a stream. A priority that the device does not have becomes the nearest that it has.
    pub(crate) fn create(&self, id: StreamId, priority: i32, _: &Bound) -> Result<()> {
        let priorities = &self.primary.priorities;
        let priority = priority.clamp(*priorities.start(), *priorities.end());
        let Primary { api, reclaim, .. } = self.primary;
        if self.table.read().contains_key(&id) {
            return Err(taken("stream", id.0));
        }
        let mut raw = StreamHandle::NULL;
        // SAFETY: writes one handle; the context is bound.
        unsafe { api.stream_create(&mut raw, STREAM_NON_BLOCKING, priority) }
            .map_err(|failed| self.primary.error(failed))?;
        self.insert(DriverStream::new(id, raw, self.cached.clone(), reclaim))
    }

    /// Adds a stream of foreign code.
    pub(crate) fn add(&self, id: StreamId, raw: StreamHandle, owner: ForeignOwner) -> Result<()> {
        let stream = DriverStream::new(id, raw, self.cached.clone(), &self.primary.reclaim);
        self.insert(stream.owned_by(owner))
    }

    fn insert(&self, stream: DriverStream) -> Result<()> {
        let id = stream.id;
        match self.table.write().entry(id) {
            Entry::Vacant(entry) => entry.insert(Arc::new(stream)),
            Entry::Occupied(_) => return Err(taken("stream", id.0)),
        };
        Ok(())
    }

    /// Removes a stream. The driver's stream is destroyed when its last holder drops it.
    pub(crate) fn retire(&self, id: StreamId) -> Result<()> {
        let removed = self.table.write().remove(&id);
        self.cache.evict([id.0, 0]);
        removed.map(drop).ok_or_else(|| Error::no_such_object("stream", id.0))
    }

    /// Takes out every stream, for a backend that is dropped.
    pub(crate) fn take(&mut self) -> Vec<Arc<DriverStream>> {
        std::mem::take(self.table.get_mut()).into_values().collect()
    }
}

/// The error for a new id that is in use.
#[cold]
pub(crate) fn taken(object: &'static str, id: u64) -> Error {
    Misuse::IdInUse { object: object.into(), id }.into()
}
