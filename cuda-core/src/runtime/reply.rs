//! Replies to requests: a value that arrives later, to be polled or waited for.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::streams::Streams;
use crate::{
    protocol::{Answer, DeviceInfo, Error, Reply, Result},
    sync::{Receiver, one_shot},
};

/// The future reply to a request. Await it, or block on it with [`wait`](Pending::wait).
#[must_use = "the reply is lost unless it is awaited, polled or waited for"]
pub struct Pending<T>(State<T>);

enum State<T> {
    Known(Result<T>),
    Asked(Receiver<Result<Reply>>, Convert<T>, Asked),
    Taken,
}

/// The device that will reply.
struct Asked {
    /// Its address, for the error if no reply comes.
    address: String,
    streams: Arc<Streams>,
}

/// Takes the value out of a reply of the right kind.
type Convert<T> = Box<dyn FnOnce(Reply) -> Result<T> + Send>;

impl<T> Pending<T> {
    /// A reply of a device, and the answer that will bring it.
    pub(crate) fn new(
        device: &DeviceInfo,
        streams: &Arc<Streams>,
        convert: impl FnOnce(Reply) -> Result<T> + Send + 'static,
    ) -> (Self, Answer) {
        let (sender, receiver) = one_shot();
        let asked = Asked { address: device.address.clone(), streams: streams.clone() };
        let pending = Self(State::Asked(receiver, Box::new(convert), asked));
        (pending, Answer::new(move |reply| sender.send(reply)))
    }

    /// A reply that is known.
    pub(crate) const fn ready(value: Result<T>) -> Self {
        Self(State::Known(value))
    }

    /// Polls for the reply.
    ///
    /// # Errors
    /// The error of the request; [`Error::AlreadyEnded`] after the reply was taken.
    pub fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<T>> {
        let State::Asked(receiver, ..) = &mut self.0 else { return Poll::Ready(self.take(None)) };
        receiver.poll(task).map(|reply| self.take(reply))
    }

    /// Blocks the calling thread until the reply arrives.
    ///
    /// # Errors
    /// The errors of [`poll`](Pending::poll). [`Error::Misuse`] inside the [output function](crate::Device::set_output)
    /// of the device, and inside a waker of a leased device, where the reply would never arrive.
    pub fn wait(mut self) -> Result<T> {
        let State::Asked(receiver, _, asked) = &mut self.0 else { return self.take(None) };
        asked.streams.output.check_may_wait()?;
        let reply = match receiver.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => reply,
            Poll::Pending => {
                asked.streams.check_thread()?;
                receiver.wait()
            }
        };
        self.take(reply)
    }

    fn take(&mut self, reply: Option<Result<Reply>>) -> Result<T> {
        match std::mem::replace(&mut self.0, State::Taken) {
            State::Known(value) => value,
            State::Asked(_, convert, asked) => {
                reply.unwrap_or_else(|| Err(no_reply(asked.address))).and_then(convert)
            }
            State::Taken => Err(Error::AlreadyEnded),
        }
    }
}

/// The backend dropped the answer.
#[cold]
fn no_reply(address: String) -> Error {
    let cause = "its backend dropped a request without a reply; open the device again".into();
    Error::DeviceLost { address, cause }
}

// Nothing of it is pinned.
impl<T> Unpin for Pending<T> {}

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

/// The error for a reply that does not match its request.
pub(crate) fn unexpected(reply: &Reply) -> Error {
    let what = "the backend sent a reply of the wrong kind; report this bug of the backend".into();
    Error::Host { what, detail: format!("{reply:?}") }
}
