//! Times of a session, for the metrics of the node.
//!
//! Commands are a hot path, so one operation of each batch of commands is timed, not all. A batch is what one read of
//! the socket gives. A report goes to the supervisor at most every [`PERIOD`], in front of other events or alone.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use cuda_core::Backlog;
use parking_lot::Mutex;

use super::{messages::Measured, outbox::Outbox};
use crate::metrics::Histogram;

/// The least time between two reports.
pub(super) const PERIOD: Duration = Duration::from_millis(100);

/// The least time between two readings of the progress of a stream.
const PEEK_PERIOD: Duration = Duration::from_millis(10);

/// The times of a session since its last report.
#[derive(Default)]
pub(super) struct Telemetry {
    times: Mutex<Times>,
    /// Whether a report is scheduled.
    is_scheduled: AtomicBool,
}

#[derive(Default)]
struct Times {
    queue: Histogram,
    device: Histogram,
}

impl Telemetry {
    /// Adds the time from the arrival of an operation to its submission.
    pub(super) fn queue(&self, time: Duration, outbox: &Outbox) {
        self.times.lock().queue.record(time);
        self.changed(outbox);
    }

    /// Adds the time from the submission of an operation to its completion.
    pub(super) fn device(&self, time: Duration, outbox: &Outbox) {
        self.times.lock().device.record(time);
        self.changed(outbox);
    }

    /// Schedules a report, unless one is scheduled.
    #[inline]
    pub(super) fn changed(&self, outbox: &Outbox) {
        if !self.is_scheduled.load(Ordering::Relaxed)
            && !self.is_scheduled.swap(true, Ordering::AcqRel)
        {
            outbox.schedule_report(Instant::now() + PERIOD);
        }
    }

    /// Takes the report that is due.
    pub(super) fn report(
        &self,
        memory: impl FnOnce() -> u64,
        backlog: impl FnOnce() -> Backlog,
    ) -> Measured {
        // First, so that a change during this call schedules the next report.
        self.is_scheduled.store(false, Ordering::Release);
        let Times { queue, device } = std::mem::take(&mut *self.times.lock());
        let Backlog { submissions: backlog, host_bytes: backlog_bytes, .. } = backlog();
        Measured { queue, device, memory: memory(), backlog, backlog_bytes }
    }
}

/// The clock of the commands of a session, and the choice of those that are timed.
pub(super) struct Sampler {
    /// The time of the latest batch, or of the latest pass over held commands.
    pub(super) now: Instant,
    /// The arrival of the command that is carried out.
    pub(super) arrived: Instant,
    /// Whether no operation of the batch was timed yet.
    is_due: bool,
    /// The time at which the progress of a stream was read last.
    peeked: Instant,
}

impl Default for Sampler {
    fn default() -> Self {
        let now = Instant::now();
        Self { now, arrived: now, is_due: false, peeked: now }
    }
}

impl Sampler {
    /// Begins a batch or a pass.
    pub(super) fn begin(&mut self) {
        self.now = Instant::now();
        self.arrived = self.now;
        self.is_due = true;
    }

    /// Whether the progress of a stream may be read now. On a GPU that is a call of the driver, so it happens at most
    /// once in [`PEEK_PERIOD`].
    pub(super) fn may_peek(&mut self) -> bool {
        let may = self.now.saturating_duration_since(self.peeked) >= PEEK_PERIOD;
        if may {
            self.peeked = self.now;
        }
        may
    }

    /// Records that an operation was submitted. Returns its time in the queue if it is to be timed.
    #[inline]
    pub(super) fn submitted(&mut self) -> Option<Duration> {
        std::mem::take(&mut self.is_due).then(|| self.arrived.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_operation_of_a_batch_is_timed() {
        let mut sampler = Sampler::default();
        assert_eq!(sampler.submitted(), None);
        sampler.begin();
        assert!(sampler.submitted().is_some() && sampler.submitted().is_none());
        sampler.begin();
        sampler.arrived -= Duration::from_secs(1);
        assert!(sampler.submitted() >= Some(Duration::from_secs(1)));
    }

    #[test]
    fn report_has_the_times_since_the_last_one() {
        let (telemetry, outbox) = (Telemetry::default(), Outbox::default());
        telemetry.queue(Duration::from_micros(3), &outbox);
        telemetry.queue(Duration::from_micros(5), &outbox);
        telemetry.device(Duration::from_millis(1), &outbox);
        // Returns when the report is due.
        let batch = outbox.wait();
        assert!(batch.is_report_due && batch.is_open && batch.unnumbered.is_empty());
        let Measured { queue, device, memory, .. } = telemetry.report(|| 7, Backlog::default);
        assert_eq!((queue.count(), device.count(), memory), (2, 1, 7));
        telemetry.device(Duration::from_millis(1), &outbox);
        assert!(outbox.wait().is_report_due);
        let Measured { queue, device, .. } = telemetry.report(|| 7, Backlog::default);
        assert_eq!((queue.count(), device.count()), (0, 1));
    }
}
