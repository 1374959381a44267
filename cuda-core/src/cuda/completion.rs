//! Notices: asked for by a host function in the stream, answered by a thread that may call the driver.

use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use super::{
    context::{Bound, Primary},
    discard::Stream,
    outstanding::{Key, Outstanding},
};
use crate::{Error, Notice, NoticeSink, Result, StreamId};

/// How often the streams are asked while notices are outstanding and none comes. After a fault the
/// device's answer takes about three times as long to turn into an error.
pub(super) const WATCH: Duration = Duration::from_millis(50);

/// Asks for notices and delivers them.
pub(super) struct Completion {
    primary: &'static Primary,
    notices: Arc<dyn NoticeSink>,
    inbox: Arc<Inbox>,
}

/// A notice that somebody waits for.
struct Asked {
    /// Held, so that it can be asked for its status whatever becomes of its name.
    stream: Arc<Stream>,
    id: StreamId,
    token: u64,
}

/// What the completion thread, the host functions and the enqueueing threads share. The lock is never
/// held across a call of the driver or of a user.
#[derive(Default)]
struct Inbox {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    outstanding: Outstanding<Asked>,
    /// The thread was started.
    started: bool,
    /// The thread waits without a timeout: whoever accepts an entry wakes it to watch.
    parked: bool,
    /// The backend is gone.
    closed: bool,
}

/// What the thread does next.
enum Step {
    /// Answer these, asking their streams first.
    Answer,
    /// Nothing came for a while: ask how this stream is.
    Watch(Arc<Stream>),
    /// All is done.
    End,
}

impl Completion {
    pub(super) fn new(primary: &'static Primary, notices: Arc<dyn NoticeSink>) -> Self {
        Self { primary, notices, inbox: Arc::default() }
    }

    /// Enqueues a host function that asks for the notice with this token.
    pub(super) fn notify(
        &self,
        id: StreamId,
        stream: &Arc<Stream>,
        token: u64,
        _: &Bound,
    ) -> Result<()> {
        let key = self.accept(Asked { stream: Arc::clone(stream), id, token })?;
        let call = Box::new(Call { inbox: Arc::clone(&self.inbox), key });
        let data = Box::into_raw(call);
        // SAFETY: the stream is held; `fire` takes the box over when it runs, which is once at most.
        let enqueued = unsafe { self.primary.api.launch_host(stream.raw, fire, data.cast()) };
        let Err(failed) = enqueued else { return Ok(()) };
        // SAFETY: the driver refused, so `fire` will never run and the box is still ours.
        drop(unsafe { Box::from_raw(data) });
        let withdrawn = self.inbox.state.lock().outstanding.withdraw(key);
        match withdrawn {
            Some(_) => Err(self.primary.error(failed)),
            // The loss of the device was faster: the notice is answered, so this was accepted.
            None => Ok(()),
        }
    }

    fn accept(&self, asked: Asked) -> Result<Key> {
        let mut state = self.inbox.state.lock();
        if !state.started {
            self.start()?;
            state.started = true;
        }
        let key = state.outstanding.accept(asked);
        if std::mem::take(&mut state.parked) {
            self.inbox.wake.notify_one();
        }
        Ok(key)
    }

    fn start(&self) -> Result<()> {
        let (primary, inbox) = (self.primary, Arc::clone(&self.inbox));
        let notices = Arc::clone(&self.notices);
        std::thread::Builder::new()
            .name("cuda-completion".into())
            .spawn(move || run(primary, &inbox, &*notices))
            .map(drop)
            .map_err(|error| Error::Host {
                what: "starting the completion thread".into(),
                detail: error.to_string(),
            })
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.inbox.state.lock().closed = true;
        self.inbox.wake.notify_one();
    }
}

/// What a host function carries. If the device is lost it never runs, and its few bytes stay.
struct Call {
    inbox: Arc<Inbox>,
    key: Key,
}

/// The host function: on a thread of the driver, so it calls nothing and drops nothing of a user's.
unsafe extern "system" fn fire(data: *mut c_void) {
    // SAFETY: made by `notify`, which gave it away; the driver calls this once.
    let call = unsafe { Box::from_raw(data.cast::<Call>()) };
    if call.inbox.state.lock().outstanding.fire(call.key) {
        call.inbox.wake.notify_one();
    }
}

impl Inbox {
    /// Waits for something to do. What is to be answered is put into `batch`.
    fn next(&self, batch: &mut Vec<Asked>) -> Step {
        let mut state = self.state.lock();
        let mut quiet = false;
        loop {
            if state.outstanding.has_fired() {
                state.outstanding.take_fired(batch);
                return Step::Answer;
            }
            let oldest = state.outstanding.oldest().map(|asked| Arc::clone(&asked.stream));
            match oldest {
                Some(stream) if quiet => return Step::Watch(stream),
                None if state.closed => return Step::End,
                // Nothing for a whole period and nobody waits: no more timeouts until somebody does.
                None if quiet => {
                    state.parked = true;
                    self.wake.wait(&mut state);
                    state.parked = false;
                    quiet = false;
                }
                _ => quiet = self.wake.wait_for(&mut state, WATCH).timed_out(),
            }
        }
    }
}

fn run(primary: &'static Primary, inbox: &Inbox, notices: &dyn NoticeSink) {
    // Bound for as long as the thread lives. If that fails the device is lost.
    let bound = primary.bind();
    let mut batch = Vec::new();
    loop {
        match inbox.next(&mut batch) {
            Step::Answer => {
                for Asked { stream, id, token } in batch.drain(..) {
                    let status = ask(primary, &stream, &bound);
                    deliver(notices, Notice { stream: id, token, status });
                }
            }
            Step::Watch(stream) => {
                let Err(error) = ask(primary, &stream, &bound) else { continue };
                if primary.fault().is_none() {
                    continue; // a stream that is being captured cannot be asked
                }
                inbox.state.lock().outstanding.take_all(&mut batch);
                for Asked { id, token, .. } in batch.drain(..) {
                    deliver(notices, Notice { stream: id, token, status: Err(error.clone()) });
                }
            }
            Step::End => return,
        }
    }
}

/// How a stream is. Everybody who waits for a notice is told of the fault itself, also if somebody
/// else learnt of it first.
fn ask(primary: &Primary, stream: &Stream, bound: &Result<Bound>) -> Result<()> {
    let asked = match bound {
        Ok(bound) => primary.alive().and_then(|()| primary.ask(stream, bound)),
        Err(error) => Err(error.clone()),
    };
    asked.map(drop).map_err(|error| primary.fault().unwrap_or(error))
}

fn deliver(notices: &dyn NoticeSink, notice: Notice) {
    // What a notice wakes may run a user's code. Its panic is printed there and then; it must not
    // take the notices of everybody else with it.
    _ = catch_unwind(AssertUnwindSafe(|| notices.notice(notice)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::{api::StreamHandle, discard::Trash};

    static TRASH: std::sync::LazyLock<Trash> = std::sync::LazyLock::new(Trash::default);

    fn asked(token: u64) -> Asked {
        let stream = Arc::new(Stream::new(StreamHandle::NULL, &TRASH));
        Asked { stream, id: StreamId(1), token }
    }

    fn call(inbox: &Arc<Inbox>, token: u64) -> *mut c_void {
        let key = inbox.state.lock().outstanding.accept(asked(token));
        Box::into_raw(Box::new(Call { inbox: Arc::clone(inbox), key })).cast()
    }

    #[test]
    fn a_host_function_wakes_the_thread_with_its_entry() {
        let inbox = Arc::new(Inbox::default());
        let data = call(&inbox, 7) as usize;
        let driver = std::thread::spawn(move || {
            // SAFETY: made by `call`, run once.
            unsafe { fire(data as *mut c_void) }
        });
        let mut batch = Vec::new();
        while !matches!(inbox.next(&mut batch), Step::Answer) {}
        assert_eq!(batch.iter().map(|asked| asked.token).collect::<Vec<_>>(), [7]);
        driver.join().unwrap();
    }

    #[test]
    fn silence_makes_it_watch_and_a_late_host_function_changes_nothing() {
        let inbox = Arc::new(Inbox::default());
        let data = call(&inbox, 7);
        let mut batch = Vec::new();
        assert!(matches!(inbox.next(&mut batch), Step::Watch(_)));
        inbox.state.lock().outstanding.take_all(&mut batch);
        // SAFETY: made by `call`, run once.
        unsafe { fire(data) };
        assert_eq!(batch.len(), 1);
        assert!(inbox.state.lock().outstanding.is_empty());
    }

    #[test]
    fn it_ends_when_the_backend_is_gone_and_everything_is_answered() {
        let inbox = Arc::new(Inbox::default());
        inbox.state.lock().closed = true;
        let data = call(&inbox, 1);
        let mut batch = Vec::new();
        assert!(matches!(inbox.next(&mut batch), Step::Watch(_)), "one is outstanding");
        // SAFETY: made by `call`, run once.
        unsafe { fire(data) };
        assert!(matches!(inbox.next(&mut batch), Step::Answer));
        assert!(matches!(inbox.next(&mut batch), Step::End));
    }

    #[test]
    fn a_parked_thread_is_woken_by_the_end() {
        let inbox = Arc::new(Inbox::default());
        let thread = {
            let inbox = Arc::clone(&inbox);
            std::thread::spawn(move || matches!(inbox.next(&mut Vec::new()), Step::End))
        };
        while !inbox.state.lock().parked {
            std::thread::yield_now();
        }
        inbox.state.lock().closed = true;
        inbox.wake.notify_one();
        assert!(thread.join().unwrap());
    }
}
