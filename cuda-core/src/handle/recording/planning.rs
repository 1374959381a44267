//! Plans: recordings that never run, for a look at the work of an operation.
//!
//! Memory that is allocated on a stream of a plan is *planned*: it has an id and a size, and the device has none of it.
//! Submissions of other streams that name planned memory are errors.

use std::sync::Arc;

use super::nodes::{RecordedNode, described};
use crate::{
    handle::{
        device::Device,
        stream::{Recorder, Stream},
    },
    protocol::{Error, Misuse, Result},
};

/// Returns a stream of a new plan. Work that is submitted to the stream is recorded and never runs; [`end_plan`]
/// returns it. Memory that is allocated on the stream does not exist on the device.
pub fn start_plan(device: &Device) -> Stream {
    Stream::recorded(device.clone(), None, Arc::new(Recorder::of_plan()))
}

/// Ends the plan of a stream and returns its nodes, in an order in which they can run.
///
/// # Errors
/// [`Error::Misuse`] if this is not a stream of a plan, or if the plan has ended.
pub fn end_plan(stream: &Stream) -> Result<Vec<RecordedNode>> {
    let Some(recorder) = stream.recorder().filter(|recorder| recorder.is_plan()) else {
        return Err(Error::Misuse(Misuse::NotRecording));
    };
    let recorded = recorder.end()?;
    Ok(described(&recorded.plan.into_nodes(), &recorded.kernels))
}
