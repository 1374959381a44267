//! Names of recorded work.

use std::sync::Arc;

use super::{recorder::Recorder, stream::Stream};

impl Stream {
    /// Names the work that this recording takes until the guard is dropped, inside the names that it has already.
    /// Returns `None` for a live stream, whose work has no names.
    #[doc(hidden)]
    pub fn name_recorded(&self, name: &str) -> Option<RecordedName> {
        let recorder = self.recorder()?.clone();
        let key = recorder.begin_name(name)?;
        Some(RecordedName { recorder, key })
    }
}

/// Names recorded work until it is dropped.
#[doc(hidden)]
pub struct RecordedName {
    recorder: Arc<Recorder>,
    key: u64,
}

impl Drop for RecordedName {
    fn drop(&mut self) {
        self.recorder.end_name(self.key);
    }
}
