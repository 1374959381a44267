//! The owner of the resources that an executable's launches use.
//!
//! Retaining the resources for each launch costs a tenth of the time of a launch. So one owner holds them for all
//! launches, with the last launch on each stream. When the owner is dropped, the streams whose last launch is not
//! complete retain the resources.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{handle::device::Device, order::Retain, protocol::Ticket};

/// The number of streams at which a launch on another stream first removes the entries of complete launches.
const STREAMS: usize = 8;

/// Resources that launches use. When it is dropped, the streams of incomplete launches retain them.
pub struct LaunchResources {
    device: Device,
    resources: Arc<dyn Retain>,
    /// The last launch on each stream.
    last: SmallVec<[Ticket; 2]>,
    /// Whether later launches have other resources.
    is_superseded: bool,
}

/// Resources that later launches do not use. Dropped without the lock of the recording, because a drop can run code of
/// a user.
pub(super) type Retired = Vec<LaunchResources>;

impl LaunchResources {
    /// Creates the owner of the resources of launches on a device.
    pub fn new(device: &Device, resources: Arc<dyn Retain>) -> Self {
        let last = SmallVec::new();
        Self { device: device.clone(), resources, last, is_superseded: false }
    }

    /// The same resources, of a graph whose later launches have others. Such resources are dropped often, so a report
    /// is requested only when many of them wait for one.
    pub fn superseded(mut self) -> Self {
        self.is_superseded = true;
        self
    }

    /// Records a launch that the backend has taken, as the last one of its stream.
    #[inline]
    pub fn launched(&mut self, launch: Ticket) {
        match self.last.iter_mut().find(|ticket| ticket.stream == launch.stream) {
            Some(last) => last.number = launch.number,
            None => self.add_stream(launch),
        }
    }

    #[cold]
    fn add_stream(&mut self, launch: Ticket) {
        if self.last.len() >= STREAMS {
            let streams = &self.device.core().streams;
            self.last.retain(|ticket| !streams.is_complete(*ticket));
        }
        self.last.push(launch);
    }
}

impl Drop for LaunchResources {
    fn drop(&mut self) {
        let core = self.device.core();
        for Ticket { stream, number } in self.last.iter().copied() {
            // A stream that was retired has run everything.
            let Some(timeline) = core.streams.find(stream) else { continue };
            if timeline.progress.completed() >= number {
                continue;
            }
            let is_report_due = timeline.retain_until(number, self.resources.clone());
            // Without later launches on this stream, nothing else requests a report.
            if is_report_due || !self.is_superseded {
                core.retire_launch(Ticket { stream, number });
            }
        }
    }
}
