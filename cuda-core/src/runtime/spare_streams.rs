//! Streams that were lent, came back, and are lent again.

use std::sync::Arc;

use crate::{order::timeline::Timeline, sync::Mutex};

/// If the pool has this many busy streams of one priority, and no idle one, it lends the oldest of them again.
const MAX_BUSY_SPARES: usize = 16;

#[derive(Default)]
pub(crate) struct SpareStreams(Mutex<Vec<Arc<Timeline>>>);

impl SpareStreams {
    /// Takes an idle stream of this priority. If there is none, but at least [`MAX_BUSY_SPARES`] busy ones, takes the
    /// one that came back first. Busy streams are avoided because they may run abandoned work for a long time.
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
