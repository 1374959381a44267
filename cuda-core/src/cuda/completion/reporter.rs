//! Asks streams to report their progress, and starts the completion thread.

use std::{ffi::c_void, sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::{
    wait_budget::Wakeup,
    watcher::{self, ReportInbox, WatchedDevice},
};
use crate::{
    cuda::{
        context::{Bound, Primary, StreamStatus, Word},
        driver::status::Failed,
        streams::DriverStream,
    },
    protocol::{Error, NoticeSink, Result},
};

/// The way in which a CUDA device reports progress. In both ways the completion thread sees the report, reads the
/// status of the stream, and then wakes the waiting tasks. With nothing in flight it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completion {
    /// The stream writes a word of host memory, which the completion thread polls. The stream is not delayed, and the
    /// wake comes some microseconds after the work. The default if the device supports it; else `HostFunction` is used.
    StreamWrite {
        /// The time for which the thread spins after an event. After that it sleeps between looks, each time for at
        /// most 1/32 of the time that it has waited. While events are closer together than `spin`, the thread keeps a
        /// core busy.
        spin: Duration,
    },
    /// The driver calls a host function on its own thread, and the function wakes the completion thread. No thread
    /// spins. A wake takes about 20 us more, and the stream runs no work while the function runs.
    HostFunction,
}

impl Default for Completion {
    /// [`StreamWrite`](Completion::StreamWrite), which spins for 500 us, or for 20 us with fewer than four cores.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = Duration::from_micros(if cores < 4 { 20 } else { 500 });
        Self::StreamWrite { spin }
    }
}

/// Asks for reports. The first one starts the completion thread.
pub(crate) struct Reporter {
    core: Core,
    notices: Arc<dyn NoticeSink>,
    started: Mutex<bool>,
}

/// The part that the completion thread has too.
#[derive(Clone)]
struct Core {
    primary: &'static Primary,
    wakeup: Wakeup,
    inbox: Arc<ReportInbox>,
}

impl Reporter {
    pub(crate) fn new(
        primary: &'static Primary,
        notices: Arc<dyn NoticeSink>,
        completion: Completion,
    ) -> Self {
        let wakeup = match completion {
            Completion::StreamWrite { spin } if primary.writes_words => Wakeup::Polled(spin),
            _ => Wakeup::Signalled,
        };
        let core = Core { primary, wakeup, inbox: Arc::default() };
        Self { core, notices, started: Mutex::default() }
    }

    /// Has the stream report progress that covers `number`. Never blocks.
    ///
    /// # Errors
    /// The fault that lost the device, a number that was not submitted, or the error of starting the thread. The next
    /// call tries that again.
    pub(crate) fn want(
        &self,
        stream: &Arc<DriverStream>,
        number: u64,
        bound: &Bound,
    ) -> Result<()> {
        stream.check_accepted(number)?;
        if stream.will_report(number) {
            return Ok(());
        }
        self.start()?;
        watcher::want(&self.device(bound), &self.core.inbox, stream, number);
        Ok(())
    }

    /// Foreign code that enqueued on the stream has returned: enqueues the write that was held back.
    pub(crate) fn end_foreign(&self, stream: &Arc<DriverStream>, bound: &Bound) {
        let (device, inbox) = (self.device(bound), &self.core.inbox);
        stream.end_foreign(|value| watcher::enqueue(&device, inbox, stream, value));
    }

    fn device<'a>(&'a self, bound: &'a Bound) -> BoundDevice<'a> {
        BoundDevice { core: &self.core, bound: Ok(bound) }
    }

    fn start(&self) -> Result<()> {
        let mut started = self.started.lock();
        if *started {
            return Ok(());
        }
        let (core, notices) = (self.core.clone(), Arc::clone(&self.notices));
        std::thread::Builder::new()
            .name("cuda-completion".into())
            .spawn(move || run(&core, &*notices))
            .map_err(|error| Error::Host {
                what: "failed to start the completion thread".into(),
                detail: error.to_string(),
            })?;
        *started = true;
        Ok(())
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.core.inbox.close();
    }
}

/// The completion thread.
fn run(core: &Core, notices: &dyn NoticeSink) {
    sleep_precisely();
    // Bound until the thread ends. If that fails, the device is lost.
    let bound = core.primary.bind_own_thread();
    let device = BoundDevice { core, bound: bound.as_ref() };
    watcher::watch(&device, core.wakeup, &core.inbox, notices);
}

/// Has this thread's sleeps end in time: Linux makes them up to 50 us longer, to save wake-ups.
fn sleep_precisely() {
    #[cfg(target_os = "linux")]
    // SAFETY: sets a number of the calling thread. If that fails, sleeps are a little longer.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
    }
}

/// The device on a thread that has bound its context.
struct BoundDevice<'a> {
    core: &'a Core,
    bound: std::result::Result<&'a Bound, &'a Error>,
}

impl WatchedDevice for BoundDevice<'_> {
    fn lost(&self) -> Option<Error> {
        self.core.primary.fault().or_else(|| self.bound.err().cloned())
    }

    fn status(&self, stream: &DriverStream) -> Result<Option<u64>> {
        let bound = self.bound.map_err(Error::clone)?;
        // Before the query: what is submitted meanwhile may not have run.
        let accepted = stream.accepted();
        let status = self.core.primary.status(stream.raw, bound)?;
        Ok((status == StreamStatus::Idle).then_some(accepted))
    }

    fn write_word(&self, stream: &DriverStream, value: u64) -> bool {
        let (primary, word) = (self.core.primary, stream.word);
        if self.bound.is_err() {
            return false;
        }
        let taken = match self.core.wakeup {
            // SAFETY: the caller holds the stream; the word's memory is never freed (rule 8).
            Wakeup::Polled(_) => unsafe {
                primary.api.write_word(stream.raw, word.address(), value, 0)
            },
            Wakeup::Signalled => self.core.call(stream, value),
        };
        // A fault is marked at the device, and the completion thread reports it.
        taken.map_err(|failed| primary.error(failed)).is_ok()
    }
}

impl Core {
    /// Enqueues a host function that writes the stream's word.
    fn call(&self, stream: &DriverStream, value: u64) -> std::result::Result<(), Failed> {
        let call = Box::new(Call { inbox: Arc::clone(&self.inbox), word: stream.word, value });
        let data = Box::into_raw(call);
        // SAFETY: the caller holds the stream; `fire` takes over the box when it runs, at most once.
        let enqueued = unsafe { self.primary.api.launch_host(stream.raw, fire, data.cast()) };
        if enqueued.is_err() {
            // SAFETY: the driver refused, so `fire` never runs and the box is still owned here.
            drop(unsafe { Box::from_raw(data) });
        }
        enqueued
    }
}

/// The data of a host function. If the device is lost it never runs, and its few bytes are leaked.
struct Call {
    inbox: Arc<ReportInbox>,
    word: Word,
    value: u64,
}

/// The host function. Runs on a driver's thread, so it calls no driver and drops nothing of a user's.
unsafe extern "system" fn fire(data: *mut c_void) {
    // SAFETY: made by `call`, which gave it away; the driver calls this once.
    let call = unsafe { Box::from_raw(data.cast::<Call>()) };
    call.word.store(call.value);
    call.inbox.wake();
}

/// Runs a host function as the driver does.
#[cfg(all(test, loom))]
pub(crate) fn host_call(inbox: &Arc<ReportInbox>, word: Word, value: u64) {
    let call = Box::new(Call { inbox: Arc::clone(inbox), word, value });
    // SAFETY: made here, run once.
    unsafe { fire(Box::into_raw(call).cast()) };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn host_function_writes_the_word_and_wakes_the_thread() {
        let (inbox, word) = (Arc::new(ReportInbox::default()), Word::on_the_heap());
        let call = Call { inbox: Arc::clone(&inbox), word, value: 7 };
        let data = Box::into_raw(Box::new(call)) as usize;
        let driver = std::thread::spawn(move || {
            // SAFETY: made above, run once.
            unsafe { fire(data as *mut c_void) }
        });
        inbox.wait(None);
        driver.join().unwrap();
        assert_eq!(word.load(), 7);
    }
}
