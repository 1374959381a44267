//! Streams that come back and are lent again.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::stream_state::StreamState;

/// First one that is known to be idle, else the one that came back longest ago.
#[derive(Default)]
pub(crate) struct SpareStreams(Mutex<Vec<Arc<StreamState>>>);

impl SpareStreams {
    pub(crate) fn take(&self) -> Option<Arc<StreamState>> {
        let mut spare = self.0.lock();
        let idle = spare.iter().rposition(|state| !state.is_busy());
        let best = idle.or(if spare.is_empty() { None } else { Some(0) })?;
        Some(spare.remove(best))
    }

    pub(crate) fn give(&self, state: Arc<StreamState>) {
        self.0.lock().push(state);
    }
}
