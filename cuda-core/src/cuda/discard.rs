//! What was dropped and still has to be given back to the driver.
//!
//! No `Drop` calls the driver: it may block, and a drop may run anywhere, on a driver's thread too. So
//! what is dropped is put here, and whoever makes the next request takes it out.

use std::sync::Arc;

use super::{
    api::{Address, Api, EventHandle, HostPointer, ModuleHandle, StreamHandle},
    status::{Meaning, meaning_of_state},
    word::{Word, Words},
};
use crate::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

/// Something to be given back.
#[derive(Debug)]
pub(super) enum Discarded {
    /// Page-locked memory that no command in flight names.
    Host(HostPointer),
    /// A stream that nobody uses.
    Stream(StreamHandle),
    /// Memory that no pool holds, to be freed once the event has been reached.
    Memory { address: Address, after: EventHandle },
    /// What a backend had when it was dropped.
    Remains(Remains),
}

/// All that a dropped backend left, to be freed once its streams are idle.
#[derive(Debug, Default)]
pub(super) struct Remains {
    pub(super) streams: Vec<Arc<Stream>>,
    pub(super) memory: Vec<Address>,
    pub(super) events: Vec<EventHandle>,
    pub(super) modules: Vec<ModuleHandle>,
}

/// What has been dropped on one device. It holds no more than was alive at once: what makes new
/// streams and new host memory drains it first.
#[derive(Debug, Default)]
pub(super) struct Trash {
    items: Mutex<Vec<Discarded>>,
    /// Whether there may be any: a look need not lock.
    any: AtomicBool,
}

impl Trash {
    /// Takes something. From any thread; waits for nobody who calls the driver.
    pub(super) fn put(&self, discarded: Discarded) {
        let mut items = self.items.lock();
        items.push(discarded);
        self.any.store(true, Ordering::Release);
    }

    /// Forgets everything: the device is lost, and the driver takes nothing back any more.
    pub(super) fn forget(&self) {
        // Dropped after the lock was let go: streams in it come back here.
        let all = std::mem::take(&mut *self.items.lock());
        drop(all);
    }

    /// Gives back what can be given back now. May block.
    ///
    /// # Safety
    /// The device's context is current.
    pub(super) unsafe fn drain(&self, api: &Api) {
        // SAFETY: the context is current, as the caller promises.
        unsafe { self.drain_some(api, |_| true) };
    }

    /// Gives back device memory alone: giving back host memory may wait for the device.
    ///
    /// # Safety
    /// The device's context is current.
    pub(super) unsafe fn drain_device_memory(&self, api: &Api) {
        let device = |it: &_| matches!(it, Discarded::Memory { .. } | Discarded::Remains(_));
        // SAFETY: the context is current, as the caller promises.
        unsafe { self.drain_some(api, device) };
    }

    /// # Safety
    /// The device's context is current.
    unsafe fn drain_some(&self, api: &Api, wanted: impl Fn(&Discarded) -> bool) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut items = self.items.lock();
        let all: Vec<_> = items.extract_if(.., |it| wanted(it)).collect();
        self.any.store(!items.is_empty(), Ordering::Release);
        drop(items);
        for discarded in all {
            // SAFETY: the context is current, as the caller promises.
            if let Some(later) = unsafe { give_back(api, discarded) } {
                self.put(later);
            }
        }
    }
}

/// A stream; destroyed some time after its last use.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) raw: StreamHandle,
    pub(super) word: Word,
    trash: &'static Trash,
    words: &'static Words,
}

impl Stream {
    pub(super) fn new(
        raw: StreamHandle,
        word: Word,
        trash: &'static Trash,
        words: &'static Words,
    ) -> Self {
        Self { raw, word, trash, words }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.words.give(&mut self.word);
        self.trash.put(Discarded::Stream(self.raw));
    }
}

/// Gives one thing back, or returns it where it is still in use.
///
/// A driver that refuses to take something back is not asked again: there is nobody to tell, and a
/// lost device shows itself to whoever uses it.
///
/// # Safety
/// The device's context is current.
unsafe fn give_back(api: &Api, discarded: Discarded) -> Option<Discarded> {
    match discarded {
        Discarded::Host(start) => {
            // SAFETY: it came from `host_alloc`, its block was dropped, so nobody has it.
            _ = unsafe { api.host_free(start) };
        }
        Discarded::Stream(stream) => {
            // SAFETY: its last holder dropped it.
            _ = unsafe { api.stream_destroy(stream) };
        }
        Discarded::Memory { address, after } => {
            // SAFETY: the event is this item's own and lives until two lines further down.
            if busy(unsafe { api.event_query(after) }) {
                return Some(Discarded::Memory { address, after });
            }
            // SAFETY: what was enqueued before the free has run; nobody has the two any more.
            _ = unsafe { (api.event_destroy(after), api.memory_free(address)) };
        }
        Discarded::Remains(remains) => {
            // SAFETY: the streams are held by `remains`.
            if remains.streams.iter().any(|s| busy(unsafe { api.stream_query(s.raw) })) {
                return Some(Discarded::Remains(remains));
            }
            for address in remains.memory {
                // SAFETY: the streams of its backend are idle and the backend is gone. The driver
                // takes memory of its pools here too.
                _ = unsafe { api.memory_free(address) };
            }
            for event in remains.events {
                // SAFETY: as above.
                _ = unsafe { api.event_destroy(event) };
            }
            for module in remains.modules {
                // SAFETY: as above.
                _ = unsafe { api.module_unload(module) };
            }
        }
    }
    None
}

fn busy(status: Result<(), super::status::Failed>) -> bool {
    status.is_err_and(|failed| meaning_of_state(failed.code) == Meaning::NotReady)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    #[test]
    fn a_dropped_stream_is_put_aside_also_while_everything_is_forgotten() {
        static TRASH: LazyLock<Trash> = LazyLock::new(Trash::default);
        static WORDS: LazyLock<Words> = LazyLock::new(Words::default);
        let stream = Arc::new(Stream::new(StreamHandle::NULL, Word::on_the_heap(), &TRASH, &WORDS));
        let remains = Remains { streams: vec![stream], ..Remains::default() };
        TRASH.put(Discarded::Remains(remains));
        TRASH.forget();
        assert!(matches!(TRASH.items.lock()[..], [Discarded::Stream(_)]));
        TRASH.forget();
        assert!(TRASH.items.lock().is_empty());
    }
}
