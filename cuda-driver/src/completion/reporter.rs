//! Asks streams to report their progress, and starts the completion thread.

use std::sync::Arc;

use cuda_core::protocol::{Error, NoticeSink, Result};
use parking_lot::Mutex;

use super::{
    checkpoint::{BoundDevice, ReportInbox, enqueue_checkpoint, renew_checkpoint},
    waiting::Completion,
    watcher::watch,
};
use crate::{
    context::{Bound, Primary},
    streams::DriverStream,
    windows::HeldFree,
};

/// Asks for reports. The first one starts the completion thread.
pub(crate) struct Reporter {
    primary: &'static Primary,
    completion: Completion,
    inbox: Arc<ReportInbox>,
    notices: Arc<dyn NoticeSink>,
    started: Mutex<bool>,
}

impl Reporter {
    pub(crate) fn new(
        primary: &'static Primary,
        notices: Arc<dyn NoticeSink>,
        completion: Completion,
    ) -> Self {
        Self { primary, completion, inbox: Arc::default(), notices, started: Mutex::default() }
    }

    /// Requests a report of progress that covers `number`. Does not wait for the stream. The driver may hold the call
    /// up while another thread loads a module.
    ///
    /// # Errors
    /// The fault that lost the device, a number that was not submitted, or a failure to start the completion thread.
    /// After such a failure, the next call tries again.
    pub(crate) fn want(
        &self,
        stream: &Arc<DriverStream>,
        number: u64,
        bound: &Bound,
    ) -> Result<()> {
        stream.check_submitted(number)?;
        if stream.reports.covers(number) {
            return Ok(());
        }
        self.start()?;
        let device = self.device(bound);
        let enqueue = enqueue_checkpoint(&device, &self.inbox, stream);
        stream.reports.want(number, || stream.submitted(), enqueue);
        Ok(())
    }

    /// A foreign call begins on the stream.
    ///
    /// # Errors
    /// The driver's error of recording the stream's event.
    pub(crate) fn begin_foreign(&self, stream: &Arc<DriverStream>, bound: &Bound) -> Result<()> {
        stream.event_after(stream.submitted(), self.primary, bound)?;
        let device = self.device(bound);
        stream.begin_foreign(enqueue_checkpoint(&device, &self.inbox, stream));
        Ok(())
    }

    /// Ends a foreign call on the stream, and enqueues the checkpoint that was held back. Returns the frees that
    /// were held back.
    pub(crate) fn end_foreign(&self, stream: &Arc<DriverStream>, bound: &Bound) -> Vec<HeldFree> {
        let device = self.device(bound);
        stream.end_foreign(
            renew_checkpoint(&device, &self.inbox, stream),
            enqueue_checkpoint(&device, &self.inbox, stream),
        )
    }

    fn device<'a>(&'a self, bound: &'a Bound) -> BoundDevice<'a> {
        let (primary, completion, inbox) = (self.primary, self.completion, &self.inbox);
        BoundDevice { primary, completion, inbox, bound: Ok(bound) }
    }

    fn start(&self) -> Result<()> {
        let mut started = self.started.lock();
        if *started {
            return Ok(());
        }
        let (primary, completion) = (self.primary, self.completion);
        let (inbox, notices) = (Arc::clone(&self.inbox), Arc::clone(&self.notices));
        std::thread::Builder::new()
            .name("cuda-completion".into())
            .spawn(move || run(primary, completion, &inbox, &*notices))
            .map_err(|error| Error::host("failed to start the completion thread", &error))?;
        *started = true;
        Ok(())
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

/// The completion thread.
fn run(
    primary: &'static Primary,
    completion: Completion,
    inbox: &Arc<ReportInbox>,
    notices: &dyn NoticeSink,
) {
    sleep_precisely();
    // Bound until the thread ends. If that fails, the device is lost.
    let bound = primary.bind_own_thread();
    let device = BoundDevice { primary, completion, inbox, bound: bound.as_ref() };
    watch(&device, completion, inbox, notices);
}

/// Reduces the timer slack of this thread. By default Linux makes sleeps up to 50 us longer, to save wake-ups.
fn sleep_precisely() {
    #[cfg(target_os = "linux")]
    // SAFETY: sets a number of the calling thread. If that fails, sleeps are a little longer.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
    }
}
