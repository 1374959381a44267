//! `ForkStreams`: the streams that the forks of one run borrow.

use cuda_core::{Result, Stream, internals::lend_branch};
use parking_lot::Mutex;

/// The maximum number of streams that one operation borrows for its branches, in addition to its own. Further branches
/// share them: an idle one if there is one, else the next in turn.
pub const MAX_FORK_STREAMS: usize = 7;

#[derive(Default)]
pub(crate) struct ForkStreams(Mutex<Lent>);

#[derive(Default)]
struct Lent {
    streams: Vec<Stream>,
    /// The number of times that a stream was shared because none was idle.
    next: usize,
}

impl ForkStreams {
    /// Returns the stream for one more branch of an operation on `stream`.
    pub(crate) fn next(&self, stream: &Stream) -> Result<Stream> {
        if stream.is_recording() {
            // A stream of a recording uses no resources of the device.
            return lend_branch(stream);
        }
        let mut lent = self.0.lock();
        if lent.streams.len() < MAX_FORK_STREAMS {
            let borrowed = lend_branch(stream)?;
            lent.streams.push(borrowed.clone());
            return Ok(borrowed);
        }
        // The others may still run work of dropped branches.
        if let Some(idle) = lent.streams.iter().find(|stream| stream.in_flight() == 0) {
            return Ok(idle.clone());
        }
        let index = lent.next % lent.streams.len();
        lent.next += 1;
        Ok(lent.streams[index].clone())
    }
}
