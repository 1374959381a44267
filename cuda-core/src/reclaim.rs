//! What was dropped and has to go. `Drop` only queues it here.
//!
//! Freeing memory is one more enqueue: the next submission, synchronisation or notice does it. Unloading
//! a module and destroying a stream may block, so submissions (which happen inside polls) leave them to
//! notices (on the completion thread), synchronisations and module loads.

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
    pub(crate) fn reclaim_memory(&self) {
        for (id, usage) in self.reclaim.frees.take() {
            self.free(id, &usage);
        }
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
                let state = self.streams.find(id)?;
                if state.is_busy() {
                    self.ask_for_notice(&state);
                    return Some(Retired::Stream(id));
                }
                self.tell(Request::DestroyStream { id });
                self.streams.remove(id);
            }
        }
        None
    }

    /// Frees on the stream of the last use, after all other uses. On a lost device the memory is lost too.
    fn free(&self, id: AllocId, usage: &Usage) {
        let unfinished: Vec<_> =
            usage.last_uses().filter(|t| !self.streams.is_complete(*t)).collect();
        let home = unfinished.last().and_then(|ticket| self.streams.find(ticket.stream));
        let home = home.unwrap_or_else(|| self.housekeeping.clone());
        let _order = home.order.lock();
        for ticket in unfinished.iter().filter(|ticket| ticket.stream != home.id) {
            if self.order_after(home.id, ticket.stream).is_err() {
                return;
            }
        }
        let _ = self.backend.enqueue(home.id, Command::Free { id }, &[]);
    }

    /// Orders what `consumer` gets from now on after what `producer` has now.
    pub(crate) fn order_after(&self, consumer: StreamId, producer: StreamId) -> Result<()> {
        let event = self.events.take();
        let recorded = self.backend.enqueue(producer, Command::Record { event }, &[]);
        let waited =
            recorded.and_then(|()| self.backend.enqueue(consumer, Command::Wait { event }, &[]));
        self.events.give(event);
        waited
    }

    fn ask_for_notice(&self, state: &StreamState) {
        // What cannot be asked is lost with its device.
        let _ = state.notify_at(&*self.backend, &mut state.order.lock(), state.published());
    }

    /// A request whose failure leaves nothing to be done: the device is lost.
    fn tell(&self, request: Request) {
        let _ = self.backend.request(request);
    }
}
