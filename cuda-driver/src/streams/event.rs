//! Events of the driver.

use cuda_core::protocol::Result;

use crate::{
    context::{Bound, Primary},
    driver::api::{EVENT_DISABLE_TIMING, EventHandle},
};

/// An event without a time stamp, which makes recording cheap.
pub(crate) fn new_event(primary: &Primary, _: &Bound) -> Result<EventHandle> {
    let mut event = EventHandle::NULL;
    // SAFETY: writes one handle; the context is bound.
    unsafe { primary.api.event_create(&mut event, EVENT_DISABLE_TIMING) }
        .map_err(|failed| primary.error(failed))?;
    Ok(event)
}
