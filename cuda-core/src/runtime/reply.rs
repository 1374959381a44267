//! Replies to requests: a value that arrives later, to be polled or waited for.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use parking_lot::{Condvar, Mutex};

use crate::{
    protocol::{Answer, Error, Reply, Result},
    sync::wake_each,
};

/// The reply to a request, on its way: a future, which [`wait`](Pending::wait) makes blocking.
#[must_use = "the reply is lost unless it is awaited, polled or waited for"]
pub struct Pending<T> {
    slot: Arc<Slot>,
    convert: Option<Box<dyn FnOnce(Reply) -> Result<T> + Send>>,
}

#[derive(Default)]
struct Slot {
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    reply: Option<Result<Reply>>,
    waker: Option<Waker>,
}

/// Gives an error if the backend drops it without a reply.
struct Giver(Option<Arc<Slot>>);

impl Giver {
    fn give(&mut self, reply: Result<Reply>) {
        let Some(slot) = self.0.take() else { return };
        let waker = {
            let mut state = slot.state.lock();
            state.reply = Some(reply);
            slot.came.notify_all();
            state.waker.take()
        };
        wake_each(waker);
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        let cause = "its backend went away before it replied".into();
        self.give(Err(Error::DeviceLost { address: "of this request".into(), cause }));
    }
}

impl<T> Pending<T> {
    /// A reply, and the answer that will bring it.
    pub(crate) fn new(convert: impl FnOnce(Reply) -> Result<T> + Send + 'static) -> (Self, Answer) {
        let slot = Arc::new(Slot::default());
        let mut giver = Giver(Some(slot.clone()));
        let pending = Self { slot, convert: Some(Box::new(convert)) };
        (pending, Answer::new(move |reply| giver.give(reply)))
    }

    /// A reply that is known.
    pub(crate) fn ready(value: Result<T>) -> Self
    where
        T: Send + 'static,
    {
        let slot = Arc::new(Slot::default());
        slot.state.lock().reply = Some(Ok(Reply::Reached(true)));
        Self { slot, convert: Some(Box::new(move |_| value)) }
    }

    /// Ready when the reply is there.
    ///
    /// # Errors
    /// The error of the request; [`Error::AlreadyEnded`] after the reply was taken.
    pub fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<T>> {
        let waker = task.waker().clone();
        let (reply, previous) = {
            let mut state = self.slot.state.lock();
            (state.reply.take(), state.waker.replace(waker))
        };
        drop(previous);
        match reply {
            Some(reply) => Poll::Ready(self.take(reply)),
            None if self.convert.is_none() => Poll::Ready(Err(Error::AlreadyEnded)),
            None => Poll::Pending,
        }
    }

    /// Blocks the calling thread until the reply is there.
    ///
    /// # Errors
    /// The error of the request.
    pub fn wait(mut self) -> Result<T> {
        let reply = {
            let mut state = self.slot.state.lock();
            loop {
                match state.reply.take() {
                    Some(reply) => break reply,
                    None => self.slot.came.wait(&mut state),
                }
            }
        };
        self.take(reply)
    }

    fn take(&mut self, reply: Result<Reply>) -> Result<T> {
        let convert = self.convert.take().ok_or(Error::AlreadyEnded)?;
        reply.and_then(convert)
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<T>> {
        Pending::poll(self.get_mut(), task)
    }
}

impl<T> std::fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pending")
    }
}

/// The error for a reply of another kind than was asked for.
pub(crate) fn unexpected(reply: &Reply) -> Error {
    let what = "the backend gave a reply of another kind than was asked for".into();
    Error::Host { what, detail: format!("{reply:?}") }
}
