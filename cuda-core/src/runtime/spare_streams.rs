//! Streams that were lent, came back, and are lent again.

use std::sync::Arc;

use crate::{order::timeline::Timeline, sync::Mutex};

/// Streams of one priority that came back with work in flight, before one of them is lent again.
const MAX_BUSY_SPARES: usize = 16;

#[derive(Default)]
pub(crate) struct SpareStreams(Mutex<Vec<Arc<Timeline>>>);

impl SpareStreams {
    /// A stream that is known to be idle. A busy one may run abandoned work for long, so it is lent only if there are
    /// [`MAX_BUSY_SPARES`] of those, and then the one that came back longest ago.
    pub(crate) fn take(&self, priority: i32) -> Option<Arc<Timeline>> {
        self.take_idle(priority).or_else(|| {
            self.take_nth(|spare| {
                let mut alike = (0..spare.len()).filter(|at| spare[*at].priority == priority);
                let oldest = alike.next();
                oldest.filter(|_| alike.count() + 1 >= MAX_BUSY_SPARES)
            })
        })
    }

    /// A stream that is known to be idle.
    pub(crate) fn take_idle(&self, priority: i32) -> Option<Arc<Timeline>> {
        let idle = |stream: &Arc<Timeline>| stream.priority == priority && !stream.is_busy();
        self.take_nth(|spare| spare.iter().rposition(idle))
    }

    fn take_nth(
        &self,
        find: impl FnOnce(&[Arc<Timeline>]) -> Option<usize>,
    ) -> Option<Arc<Timeline>> {
        let mut spare = self.0.lock();
        let found = find(&spare)?;
        Some(spare.remove(found))
    }

    pub(crate) fn give(&self, stream: Arc<Timeline>) {
        self.0.lock().push(stream);
    }
}
