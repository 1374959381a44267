//! Names of events, used again and again: a device never has more of them than were alive at once.

use crate::{EventId, sync::Mutex};

#[derive(Default)]
pub(crate) struct EventPool(Mutex<Names>);

#[derive(Default)]
struct Names {
    free: Vec<EventId>,
    issued: u64,
}

impl EventPool {
    pub(crate) fn take(&self) -> EventId {
        let mut names = self.0.lock();
        names.free.pop().unwrap_or_else(|| {
            names.issued += 1;
            EventId(names.issued)
        })
    }

    pub(crate) fn give(&self, id: EventId) {
        self.0.lock().free.push(id);
    }
}
