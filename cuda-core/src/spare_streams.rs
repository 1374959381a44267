//! Streams that come back and are lent again.

use std::sync::Arc;

use crate::{stream_state::StreamState, sync::Mutex};

/// Streams of one priority that came back with work to run, before one of them is lent again.
const MAX_BUSY_SPARES: usize = 16;

#[derive(Default)]
pub(crate) struct SpareStreams(Mutex<Vec<Arc<StreamState>>>);

impl SpareStreams {
    /// One that is known to be idle. A busy one may have to run for long what nobody waits for: only if there are
    /// [`MAX_BUSY_SPARES`] of those, the one that came back longest ago.
    pub(crate) fn take(&self, priority: i32) -> Option<Arc<StreamState>> {
        self.take_idle(priority).or_else(|| {
            self.take_nth(|spare| {
                let mut alike = (0..spare.len()).filter(|at| spare[*at].priority == priority);
                let oldest = alike.next();
                oldest.filter(|_| alike.count() + 1 >= MAX_BUSY_SPARES)
            })
        })
    }

    /// One that is known to be idle.
    pub(crate) fn take_idle(&self, priority: i32) -> Option<Arc<StreamState>> {
        let idle = |state: &Arc<StreamState>| state.priority == priority && !state.is_busy();
        self.take_nth(|spare| spare.iter().rposition(idle))
    }

    fn take_nth(
        &self,
        find: impl FnOnce(&[Arc<StreamState>]) -> Option<usize>,
    ) -> Option<Arc<StreamState>> {
        let mut spare = self.0.lock();
        let found = find(&spare)?;
        Some(spare.remove(found))
    }

    pub(crate) fn give(&self, state: Arc<StreamState>) {
        self.0.lock().push(state);
    }
}
