//! The completion thread: watches the words of streams, and delivers notices.
//!
//! # Who may touch what, and when
//! Those who ask put entries into the [`Inbox`]; the thread alone takes them out and owns them from then on, so every
//! entry is answered exactly once. An entry is put there *after* the device was asked: the word keeps what was
//! written before. The inbox's lock is never held across a call of the driver or of a user.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    context::{Bound, Primary},
    discard::Stream,
    patience::{Pause, Style, pause},
};
use crate::{
    Notice, NoticeSink, Result, StreamId,
    sync::{
        self, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
        spin_loop,
    },
};

/// A notice that somebody waits for.
pub(super) struct Asked {
    /// Held, so that it can be asked for its status whatever becomes of its name.
    pub(super) stream: Arc<Stream>,
    pub(super) id: StreamId,
    pub(super) token: u64,
    /// What the stream's word will be.
    pub(super) number: u64,
}

impl Asked {
    fn is_due(&self) -> bool {
        self.stream.word.value().load(Ordering::Acquire) >= self.number
    }
}

/// What the thread shares with those who ask.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    wake: Condvar,
    /// Something was put there or the end has come: a look need not lock.
    news: AtomicBool,
}

#[derive(Default)]
struct State {
    asked: Vec<Asked>,
    /// Wakes that nobody slept for.
    woken: bool,
    sleeping: bool,
    /// The backend is gone.
    closed: bool,
}

impl Inbox {
    pub(super) fn put(&self, asked: Asked) {
        self.change(|state| state.asked.push(asked));
    }

    pub(super) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    pub(super) fn wake(&self) {
        self.change(|_| {});
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        state.woken = true;
        self.news.store(true, Ordering::Release);
        if state.sleeping {
            self.wake.notify_one();
        }
    }

    /// Moves what came to `watched`: whether anything did, and whether the end has come.
    fn take(&self, watched: &mut Vec<Asked>) -> (bool, bool) {
        if !self.news.load(Ordering::Acquire) {
            return (false, false);
        }
        let mut state = self.state.lock();
        let came = !state.asked.is_empty();
        watched.append(&mut state.asked);
        // The end stays news until the thread has seen it with nothing left to watch.
        self.news.store(state.closed, Ordering::Release);
        (came, state.closed)
    }

    /// Sleeps until somebody changes something, or for this long.
    pub(super) fn wait(&self, most: Option<Duration>) {
        let mut state = self.state.lock();
        state.sleeping = true;
        if !state.woken {
            match most {
                Some(most) => _ = self.wake.wait_for(&mut state, most),
                None => self.wake.wait(&mut state),
            }
        }
        (state.woken, state.sleeping) = (false, false);
    }
}

/// What the thread asks of the device.
pub(super) trait Ask {
    /// Whether the device is lost.
    fn is_lost(&self) -> bool;

    /// How a stream is.
    fn status(&self, stream: &Stream) -> Result<()>;
}

struct Context {
    primary: &'static Primary,
    /// Bound for as long as the thread lives. If that fails the device is lost.
    bound: Result<Bound>,
}

impl Ask for Context {
    fn is_lost(&self) -> bool {
        self.primary.alive().is_err()
    }

    /// Everybody who waits for a notice is told of the fault itself, also if somebody else learnt of it first.
    fn status(&self, stream: &Stream) -> Result<()> {
        let asked = match &self.bound {
            Ok(bound) => self.primary.alive().and_then(|()| self.primary.ask(stream, bound)),
            Err(error) => Err(error.clone()),
        };
        asked.map(drop).map_err(|error| self.primary.fault().unwrap_or(error))
    }
}

/// What the thread knows.
struct Watch<'a, A> {
    device: &'a A,
    notices: &'a dyn NoticeSink,
    watched: Vec<Asked>,
    /// When a word changed or somebody came.
    event: Instant,
    /// When a word changed, a stream was asked, or the first of `watched` came.
    asked: Instant,
}

pub(super) fn run(
    primary: &'static Primary,
    style: Style,
    inbox: &Inbox,
    notices: &dyn NoticeSink,
) {
    sleep_precisely();
    watch(&Context { primary, bound: primary.bind() }, style, inbox, notices);
}

/// Watches until the backend is gone and everything is answered.
pub(super) fn watch(device: &impl Ask, style: Style, inbox: &Inbox, notices: &dyn NoticeSink) {
    let now = sync::now();
    let mut watch = Watch { device, notices, watched: Vec::new(), event: now, asked: now };
    loop {
        let was_idle = watch.watched.is_empty();
        let (came, closed) = inbox.take(&mut watch.watched);
        if closed && watch.watched.is_empty() {
            return;
        }
        let now = sync::now();
        if came {
            watch.event = now;
            watch.asked = if was_idle { now } else { watch.asked };
        }
        if watch.answer_due() {
            (watch.event, watch.asked) = (sync::now(), sync::now());
            continue;
        }
        let (calm, unasked) = (now - watch.event, now - watch.asked);
        match pause(style, watch.watched.is_empty(), calm, unasked) {
            Pause::Spin => spin_loop(),
            Pause::Sleep(most) => inbox.wait(Some(most)),
            Pause::Park => inbox.wait(None),
            Pause::Ask => {
                watch.ask_oldest();
                watch.asked = sync::now();
            }
        }
    }
}

/// Has this thread's sleeps end when they should: Linux makes them up to 50 us longer, to save wake-ups.
fn sleep_precisely() {
    #[cfg(target_os = "linux")]
    // SAFETY: sets a number of the calling thread. If that fails sleeps are a little longer.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
    }
}

impl<A: Ask> Watch<'_, A> {
    /// Answers those whose stream got there; all if the device is lost.
    fn answer_due(&mut self) -> bool {
        let lost = self.device.is_lost();
        if !self.watched.iter().any(|asked| lost || asked.is_due()) {
            return false;
        }
        let due: Vec<_> = self.watched.extract_if(.., |asked| lost || asked.is_due()).collect();
        let mut latest: Option<(Arc<Stream>, Result<()>)> = None;
        for Asked { stream, id, token, .. } in due {
            // Neighbours are often of one stream.
            let known = latest.take().filter(|(known, _)| Arc::ptr_eq(known, &stream));
            let status = known.map_or_else(|| self.device.status(&stream), |(_, status)| status);
            latest = Some((stream, status.clone()));
            self.deliver(Notice { stream: id, token, status });
        }
        true
    }

    /// A stream that cannot be asked, as while it is being captured, is no reason to give up: a fault is.
    fn ask_oldest(&self) {
        if let Some(oldest) = self.watched.first() {
            _ = self.device.status(&oldest.stream);
        }
    }

    fn deliver(&self, notice: Notice) {
        // What a notice wakes may run a user's code. Its panic is printed there and then; it must not
        // take the notices of everybody else with it.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.notices.notice(notice))) {
            crate::discard_panic(payload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::{
        api::StreamHandle,
        discard::Trash,
        word::{Word, Words},
    };

    static TRASH: std::sync::LazyLock<Trash> = std::sync::LazyLock::new(Trash::default);
    static WORDS: std::sync::LazyLock<Words> = std::sync::LazyLock::new(Words::default);

    fn asked(token: u64, number: u64) -> Asked {
        let stream = Stream::new(StreamHandle::NULL, Word::on_the_heap(), &TRASH, &WORDS);
        Asked { stream: Arc::new(stream), id: StreamId(1), token, number }
    }

    #[test]
    fn an_entry_is_due_when_its_word_has_got_there_or_beyond() {
        let entry = asked(7, 2);
        assert!(!entry.is_due());
        entry.stream.word.value().store(1, Ordering::Release);
        assert!(!entry.is_due());
        entry.stream.word.value().store(3, Ordering::Release);
        assert!(entry.is_due());
    }

    #[test]
    fn what_is_put_is_taken_once_and_the_end_is_seen_behind_it() {
        let (inbox, mut watched) = (Inbox::default(), Vec::new());
        assert_eq!(inbox.take(&mut watched), (false, false));
        inbox.put(asked(1, 1));
        inbox.close();
        assert_eq!(inbox.take(&mut watched), (true, true));
        assert_eq!(watched.len(), 1);
        assert_eq!(inbox.take(&mut watched), (false, true));
    }

    #[test]
    fn a_wake_before_the_sleep_is_not_lost() {
        let inbox = Inbox::default();
        inbox.wake();
        inbox.wait(None);
        inbox.wait(Some(Duration::from_millis(1)));
    }

    #[test]
    fn a_sleeping_thread_is_woken_by_what_comes() {
        let inbox = Arc::new(Inbox::default());
        let thread = {
            let inbox = Arc::clone(&inbox);
            std::thread::spawn(move || inbox.wait(None))
        };
        while !inbox.state.lock().sleeping {
            std::thread::yield_now();
        }
        inbox.put(asked(1, 1));
        thread.join().unwrap();
    }
}
