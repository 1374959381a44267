//! What was dropped and has to go. `Drop` only queues it here.
//!
//! Freeing memory is one more enqueue: the next submission, synchronisation or notice does it. Unloading
//! a module and destroying a stream may block, so submissions (which happen inside polls) and notices (for
//! which everyone waits) leave them to whoever blocks anyway: synchronisations, module loads, new streams.

use std::sync::Arc;

use crate::{
    AllocId, Command, ModuleId, Request, Result, StreamId,
    device::DeviceInner,
    hazard::{Ticket, Usage},
    inbox::Inbox,
    stream_state::StreamState,
};

/// What was dropped, by what it takes to let it go.
#[derive(Default)]
pub(crate) struct Reclaim {
    frees: Inbox<(AllocId, Usage)>,
    rest: Inbox<Retired>,
}

enum Retired {
    /// Unloaded once all of these are known to be complete.
    Module(ModuleId, Vec<Ticket>),
    /// Destroyed once it has run everything.
    Stream(StreamId),
}

impl DeviceInner {
    pub(crate) fn retire_allocation(&self, id: AllocId, usage: Usage) {
        self.reclaim.frees.push((id, usage));
    }

    /// Launches of the module may be on any stream: it waits for all that there is now.
    pub(crate) fn retire_module(&self, id: ModuleId) {
        let last =
            |state: &Arc<StreamState>| Ticket { stream: state.id, number: state.published() };
        let uses = self.streams.all().iter().map(last).collect();
        self.reclaim.rest.push(Retired::Module(id, uses));
    }

    pub(crate) fn retire_stream(&self, id: StreamId) {
        self.reclaim.rest.push(Retired::Stream(id));
    }

    /// Frees what was dropped. Called without any stream's lock; never blocks.
    #[inline]
    pub(crate) fn reclaim_memory(&self) {
        if !self.reclaim.frees.is_empty() {
            self.free_all();
        }
    }

    #[cold]
    fn free_all(&self) {
        for (id, usage) in self.reclaim.frees.take() {
            if !self.free(id, &usage) {
                self.reclaim.frees.push((id, usage));
            }
        }
        self.memory_waiters.wake();
    }

    /// Lets go of everything that can go now. Called without any stream's lock; may block.
    pub(crate) fn reclaim_all(&self) {
        self.reclaim_memory();
        for retired in self.reclaim.rest.take() {
            if let Some(later) = self.retire(retired) {
                self.reclaim.rest.push(later);
            }
        }
    }

    fn retire(&self, retired: Retired) -> Option<Retired> {
        match retired {
            Retired::Module(id, mut uses) => {
                uses.retain(|ticket| !self.streams.is_complete(*ticket));
                if !uses.is_empty() {
                    return Some(Retired::Module(id, uses));
                }
                self.tell(Request::UnloadModule { id });
            }
            Retired::Stream(id) => {
                if let Some(state) = self.streams.find(id).filter(|state| state.is_busy()) {
                    self.ask_for_notice(&state);
                    return Some(Retired::Stream(id));
                }
                if !self.streams.remove_unused(id) {
                    return Some(Retired::Stream(id));
                }
                self.tell(Request::DestroyStream { id });
            }
        }
        None
    }

    /// Frees on the stream of the last use, after all other uses; `false` if somebody submits there now. On a
    /// lost device the memory is lost too.
    fn free(&self, id: AllocId, usage: &Usage) -> bool {
        let live = |ticket: Ticket| self.streams.find(ticket.stream).map(|state| (ticket, state));
        let unfinished = usage.last_uses().filter_map(live);
        let mut unfinished: Vec<_> = unfinished
            .filter(|(ticket, state)| state.progress.completed() < ticket.number)
            .collect();
        let home = unfinished.pop().map_or_else(|| self.housekeeping.clone(), |(_, state)| state);
        // Only tried: a reset holds this while it waits for the thread that may be this one.
        let Some(_order) = home.order.try_lock() else { return false };
        for (_, state) in unfinished.iter().filter(|(_, state)| state.id != home.id) {
            if self.order_after(home.id, state).is_err() {
                return true;
            }
        }
        // SAFETY: whoever used the allocation let go of it, and what they enqueued comes before.
        let _ = unsafe { self.backend.enqueue(home.id, Command::Free { id }, &[]) };
        true
    }

    /// Orders what `consumer` gets from now on after what `producer` has now. That it is held here keeps the
    /// stream from being destroyed meanwhile.
    pub(crate) fn order_after(&self, consumer: StreamId, producer: &StreamState) -> Result<()> {
        let event = self.events.take();
        // SAFETY: neither touches memory.
        let enqueue = |stream, command| unsafe { self.backend.enqueue(stream, command, &[]) };
        let recorded = enqueue(producer.id, Command::Record { event });
        let waited = recorded.and_then(|()| enqueue(consumer, Command::Wait { event }));
        self.events.give(event);
        waited
    }

    fn ask_for_notice(&self, state: &StreamState) {
        // What cannot be asked is lost with its device.
        let _ = state.notify_at(&*self.backend, state.published());
    }

    /// A request whose failure leaves nothing to be done: the device is lost.
    fn tell(&self, request: Request) {
        let _ = self.backend.request(request);
    }
}
