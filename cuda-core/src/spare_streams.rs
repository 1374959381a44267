//! Streams that come back and are lent again.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::stream_state::StreamState;

#[derive(Default)]
pub(crate) struct SpareStreams(Mutex<Vec<Arc<StreamState>>>);

impl SpareStreams {
    /// First one that is known to be idle, else the one that came back longest ago.
    pub(crate) fn take(&self, priority: i32) -> Option<Arc<StreamState>> {
        self.take_idle(priority)
            .or_else(|| self.take_nth(|spare| spare.iter().position(|it| it.priority == priority)))
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
