//! Makes the driver set memory aside for streams while nothing runs.
//!
//! The driver takes memory for about 43 streams at a time, and waits for every running kernel whenever it takes more
//! (`benches/results/2026-11-23-h200-driver-waits.md`). A stream may be created inside a poll, which must not wait. The
//! driver keeps the memory of destroyed streams for later ones.

use crate::driver::{
    api::{Api, STREAM_NON_BLOCKING, StreamHandle},
    status::Failed,
};

use super::bound::Bound;

/// The number of streams that can be alive at a time before the creation of another one may wait for kernels.
const STREAMS: usize = 128;

/// Creates and destroys [`STREAMS`] streams.
pub(super) fn reserve(api: &Api, _: &Bound) -> Result<(), Failed> {
    let mut streams = Vec::with_capacity(STREAMS);
    let mut create = || {
        let mut stream = StreamHandle::NULL;
        // SAFETY: writes one handle.
        unsafe { api.stream_create(&mut stream, STREAM_NON_BLOCKING, 0) }?;
        streams.push(stream);
        Ok(())
    };
    let created = (0..STREAMS).try_for_each(|_| create());
    for stream in streams {
        // SAFETY: created above, and nothing uses it.
        unsafe { api.stream_destroy(stream) }?;
    }
    created
}
