//! Streams and events by the names that the client gave them.

use std::{collections::hash_map::Entry, sync::Arc};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::{
    api::{EVENT_DISABLE_TIMING, EventHandle, STREAM_NON_BLOCKING, StreamHandle},
    context::{Bound, Primary},
    discard::Stream,
    recent::Recent,
};
use crate::{Error, EventId, Result, StreamId};

/// The streams of one backend.
pub(super) struct Streams {
    primary: &'static Primary,
    table: RwLock<FxHashMap<StreamId, Arc<Stream>>>,
    recent: Recent,
}

impl Streams {
    pub(super) fn new(primary: &'static Primary) -> Self {
        Self { primary, table: RwLock::default(), recent: Recent::default() }
    }

    /// The driver's stream. Good while nobody destroys it: during an `enqueue` that names it, for one.
    #[inline]
    pub(super) fn raw(&self, id: StreamId) -> Result<StreamHandle> {
        match self.recent.get([id.0, 0]) {
            Some([raw, _]) => Ok(StreamHandle::from_bits(raw)),
            None => self.look_up(id),
        }
    }

    #[cold]
    fn look_up(&self, id: StreamId) -> Result<StreamHandle> {
        let raw = self.find(id)?.raw;
        self.recent.put([id.0, 0], [raw.to_bits(), 0]);
        Ok(raw)
    }

    /// The stream with this name, held.
    #[inline]
    pub(super) fn find(&self, id: StreamId) -> Result<Arc<Stream>> {
        self.table.read().get(&id).cloned().ok_or_else(|| self.unknown(id))
    }

    /// Makes a stream. Priorities that the device has not become the nearest that it has.
    pub(super) fn create(&self, id: StreamId, priority: i32, bound: &Bound) -> Result<()> {
        let priority =
            priority.clamp(*self.primary.priorities.start(), *self.primary.priorities.end());
        let Primary { api, words, trash, .. } = self.primary;
        let mut word = words.take(api, bound).map_err(|failed| self.primary.error(failed))?;
        let mut raw = StreamHandle::NULL;
        // SAFETY: writes one handle; the context is bound.
        unsafe { api.stream_create(&mut raw, STREAM_NON_BLOCKING, priority) }.map_err(
            |failed| {
                words.give(&mut word);
                self.primary.error(failed)
            },
        )?;
        let stream = Arc::new(Stream::new(raw, word, trash, words));
        match self.table.write().entry(id) {
            Entry::Vacant(entry) => entry.insert(stream),
            Entry::Occupied(_) => return Err(taken(format!("stream {}", id.0))),
        };
        Ok(())
    }

    /// Forgets a stream; the driver's is destroyed when the last call with it is over.
    pub(super) fn destroy(&self, id: StreamId) -> Result<()> {
        let removed = self.table.write().remove(&id);
        self.recent.forget([id.0, 0]);
        removed.map(drop).ok_or_else(|| self.unknown(id))
    }

    /// Whether the stream has run everything.
    pub(super) fn query(&self, id: StreamId, bound: &Bound) -> Result<bool> {
        self.primary.ask(&*self.find(id)?, bound)
    }

    /// Blocks until the stream has run everything.
    pub(super) fn synchronize(&self, id: StreamId, _: &Bound) -> Result<()> {
        let stream = self.find(id)?;
        // SAFETY: the stream is held.
        unsafe { self.primary.api.stream_synchronize(stream.raw) }
            .map_err(|failed| self.primary.state_error(failed))
    }

    /// Takes everything out, for a backend that is dropped.
    pub(super) fn take(&mut self) -> Vec<Arc<Stream>> {
        std::mem::take(self.table.get_mut()).into_values().collect()
    }

    #[cold]
    fn unknown(&self, id: StreamId) -> Error {
        unknown(format!("stream {}", id.0), &self.primary.info.address)
    }
}

/// The events of one backend. They live as long as it does, so a handle read from the table is good.
pub(super) struct Events {
    primary: &'static Primary,
    table: RwLock<FxHashMap<EventId, EventHandle>>,
}

impl Events {
    pub(super) fn new(primary: &'static Primary) -> Self {
        Self { primary, table: RwLock::default() }
    }

    /// Marks a point of the stream.
    pub(super) fn record(&self, id: EventId, stream: &Stream, bound: &Bound) -> Result<()> {
        let known = self.table.read().get(&id).copied();
        let event = match known {
            Some(event) => event,
            None => self.create(id, bound)?,
        };
        // SAFETY: the stream is held and events are never destroyed (rules 3 and 5).
        unsafe { self.primary.api.event_record(event, stream.raw) }
            .map_err(|failed| self.primary.error(failed))
    }

    /// Holds the stream until the event's latest recording.
    pub(super) fn wait(&self, id: EventId, stream: &Stream, _: &Bound) -> Result<()> {
        let Some(event) = self.table.read().get(&id).copied() else {
            return Ok(()); // never recorded: nothing to wait for
        };
        // SAFETY: as for recording; 0 is the default for flags.
        unsafe { self.primary.api.stream_wait(stream.raw, event, 0) }
            .map_err(|failed| self.primary.error(failed))
    }

    /// Takes everything out, for a backend that is dropped.
    pub(super) fn take(&mut self) -> Vec<EventHandle> {
        std::mem::take(self.table.get_mut()).into_values().collect()
    }

    fn create(&self, id: EventId, bound: &Bound) -> Result<EventHandle> {
        let mut table = self.table.write();
        if let Some(event) = table.get(&id) {
            return Ok(*event); // another thread was faster
        }
        let event = new_event(self.primary, bound)?;
        table.insert(id, event);
        Ok(event)
    }
}

/// An event that takes no time.
pub(super) fn new_event(primary: &Primary, _: &Bound) -> Result<EventHandle> {
    let mut event = EventHandle::NULL;
    // SAFETY: writes one handle; the context is bound.
    unsafe { primary.api.event_create(&mut event, EVENT_DISABLE_TIMING) }
        .map_err(|failed| primary.error(failed))?;
    Ok(event)
}

/// The error for a name that nothing has.
#[cold]
pub(super) fn unknown(what: String, address: &str) -> Error {
    Error::OutOfRange { what: what.into(), detail: format!("there is none on `{address}`") }
}

/// The error for a new name that something has.
#[cold]
pub(super) fn taken(what: String) -> Error {
    Error::OutOfRange { what: what.into(), detail: "there is one of that name already".into() }
}
