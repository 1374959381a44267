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
    /// Whether later launches have other resources.
    is_superseded: bool,
}

/// Resources that later launches do not use. Dropped without the lock of the recording: dropping them can run code of a
/// user, and wake tasks.
pub(super) type Retired = Vec<Held>;

impl Held {
    pub(crate) fn new(device: &Device, resource: Arc<dyn Retain>) -> Self {
        let launches = SmallVec::new();
        Self { device: device.clone(), resource, launches, is_superseded: false }
    }

    /// The same resources, of a graph whose later launches have others. So they are dropped often: a report is requested
    /// when many of them wait for one.
    pub(crate) fn superseded(mut self) -> Self {
        self.is_superseded = true;
        self
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
        let core = self.device.core();
        for launch in &self.launches {
            // A stream that is gone has run everything.
            let Some(timeline) = core.streams.find(launch.stream) else { continue };
            let is_complete = timeline.progress.completed() >= launch.number;
            if !is_complete
                && timeline.retain_until(launch.number, self.resource.clone(), !self.is_superseded)
            {
                core.want(*launch);
            }
        }
    }
}
