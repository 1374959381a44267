//! Notices: how the backend learns that a stream got somewhere.

use std::{ffi::c_void, sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::{
    context::{Bound, Primary},
    discard::Stream,
    patience::Style,
    watch::{self, Asked, Inbox},
};
use crate::{
    Error, NoticeSink, Result, StreamId,
    sync::atomic::{AtomicU64, Ordering},
};

/// How a CUDA device tells that it got somewhere. Either way one thread takes the word for it, asks the stream for
/// its status, and only then wakes whoever waits; with nothing in flight it sleeps and costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completion {
    /// The stream writes a word of host memory, which the thread watches: the stream is not held up, and the wake
    /// comes some microseconds after the work. The default where the device can do it.
    StreamWrite {
        /// How long the thread looks without a pause after anything happened; then it sleeps between
        /// looks, for at most a thirty-second part of the time that it has waited. It keeps a core busy while work
        /// comes and goes faster than this.
        spin: Duration,
    },
    /// The driver calls a function on a thread of its own, which wakes the thread: no spinning, but some 20 us more
    /// per wake, and the stream stands still meanwhile.
    HostFunction,
}

impl Default for Completion {
    /// [`StreamWrite`](Completion::StreamWrite), spinning for 500 us; for 20 us where there are less than four cores
    /// to share.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = Duration::from_micros(if cores < 4 { 20 } else { 500 });
        Self::StreamWrite { spin }
    }
}

/// Asks for notices; the thread that delivers them is started by the first.
pub(super) struct Notifier {
    primary: &'static Primary,
    notices: Arc<dyn NoticeSink>,
    style: Style,
    inbox: Arc<Inbox>,
    started: Mutex<bool>,
}

impl Notifier {
    pub(super) fn new(
        primary: &'static Primary,
        notices: Arc<dyn NoticeSink>,
        completion: Completion,
    ) -> Self {
        let style = match completion {
            Completion::StreamWrite { spin } if primary.writes_words => Style::Looks(spin),
            _ => Style::Woken,
        };
        Self { primary, notices, style, inbox: Arc::default(), started: Mutex::default() }
    }

    /// Has the stream tell when it gets here.
    pub(super) fn notify(
        &self,
        id: StreamId,
        stream: &Arc<Stream>,
        token: u64,
        _: &Bound,
    ) -> Result<()> {
        self.start()?;
        let asked = stream.word.ask(|number| match self.style {
            // SAFETY: the stream is held; the word's memory is never freed.
            Style::Looks(_) => unsafe {
                self.primary.api.write_word(stream.raw, stream.word.address(), number, 0)
            },
            Style::Woken => self.call(stream, number),
        });
        let number = asked.map_err(|failed| self.primary.error(failed))?;
        // Only now: the word keeps what the device wrote in the meantime.
        self.inbox.put(Asked { stream: Arc::clone(stream), id, token, number });
        Ok(())
    }

    /// Enqueues a host function that raises the stream's word.
    fn call(&self, stream: &Stream, number: u64) -> Result<(), super::status::Failed> {
        let call =
            Box::new(Call { inbox: Arc::clone(&self.inbox), word: stream.word.value(), number });
        let data = Box::into_raw(call);
        // SAFETY: the stream is held; `fire` takes the box over when it runs, which is once at most.
        let enqueued = unsafe { self.primary.api.launch_host(stream.raw, fire, data.cast()) };
        if enqueued.is_err() {
            // SAFETY: the driver refused, so `fire` will never run and the box is still ours.
            drop(unsafe { Box::from_raw(data) });
        }
        enqueued
    }

    fn start(&self) -> Result<()> {
        let mut started = self.started.lock();
        if *started {
            return Ok(());
        }
        let (primary, style, inbox) = (self.primary, self.style, Arc::clone(&self.inbox));
        let notices = Arc::clone(&self.notices);
        std::thread::Builder::new()
            .name("cuda-completion".into())
            .spawn(move || watch::run(primary, style, &inbox, &*notices))
            .map_err(|error| Error::Host {
                what: "starting the completion thread".into(),
                detail: error.to_string(),
            })?;
        *started = true;
        Ok(())
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

/// What a host function carries. If the device is lost it never runs, and its few bytes stay.
struct Call {
    inbox: Arc<Inbox>,
    word: &'static AtomicU64,
    number: u64,
}

/// The host function: on a thread of the driver, so it calls nothing and drops nothing of a user's.
unsafe extern "system" fn fire(data: *mut c_void) {
    // SAFETY: made by `call`, which gave it away; the driver calls this once.
    let call = unsafe { Box::from_raw(data.cast::<Call>()) };
    call.word.store(call.number, Ordering::Release);
    call.inbox.wake();
}

/// What the driver does with a host function that `Notifier::call` made.
#[cfg(all(test, loom))]
pub(super) fn host_call(inbox: &Arc<Inbox>, word: &'static AtomicU64, number: u64) {
    let call = Box::new(Call { inbox: Arc::clone(inbox), word, number });
    // SAFETY: made here, run once.
    unsafe { fire(Box::into_raw(call).cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::word::Word;

    #[test]
    fn a_host_function_raises_the_word_and_wakes_the_thread() {
        let (inbox, word) = (Arc::new(Inbox::default()), Word::on_the_heap());
        let call = Call { inbox: Arc::clone(&inbox), word: word.value(), number: 7 };
        let data = Box::into_raw(Box::new(call)) as usize;
        let driver = std::thread::spawn(move || {
            // SAFETY: made above, run once.
            unsafe { fire(data as *mut c_void) }
        });
        inbox.wait(None);
        driver.join().unwrap();
        assert_eq!(word.value().load(Ordering::Acquire), 7);
    }
}
