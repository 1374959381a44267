//! The resources of an executable's launches.
//!
//! A launch would spend a tenth of its own time in the retention of its stream. So the resources have one owner for all
//! launches of an executable, which knows the last launch on each stream. When it is dropped, these streams retain the
//! resources until the launches are complete.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{handle::device::Device, order::Retain, protocol::Ticket};

/// The number of streams above which streams without launches in flight are forgotten.
const STREAMS: usize = 8;

/// Resources that launches use. Dropped, it passes them on to the streams of launches that are not complete.
pub(crate) struct Held {
    device: Device,
    resource: Arc<dyn Retain>,
    /// The last launch on each stream.
    launches: SmallVec<[Ticket; 2]>,
}

impl Held {
    pub(crate) fn new(device: &Device, resource: Arc<dyn Retain>) -> Self {
        Self { device: device.clone(), resource, launches: SmallVec::new() }
    }

    /// Counts a launch, which the backend has taken.
    #[inline]
    pub(crate) fn count(&mut self, launch: Ticket) {
        match self.launches.iter_mut().find(|it| it.stream == launch.stream) {
            Some(last) => last.number = launch.number,
            None => self.add(launch),
        }
    }

    #[cold]
    fn add(&mut self, launch: Ticket) {
        if self.launches.len() >= STREAMS {
            let streams = &self.device.core().streams;
            self.launches.retain(|it| !streams.is_complete(*it));
        }
        self.launches.push(launch);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for launch in &self.launches {
            let core = self.device.core();
            // A stream that is gone has run everything.
            let Some(timeline) = core.streams.find(launch.stream) else { continue };
            if timeline.retain_until(launch.number, self.resource.clone()) {
                core.want(*launch);
            }
        }
    }
}
