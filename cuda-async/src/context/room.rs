//! Waiting for a stream to have room.

use std::task::{Context, Poll, ready};

use cuda_core::{MAX_IN_FLIGHT, Result, Stream, Waiter};

use super::{ExecutionContext, Run};

/// A step's wait for room on its stream, if it has to wait: see [`ExecutionContext::poll_room`]. Every step has one of
/// its own, since several that wait at the same time may share a context. A clone does not wait yet.
#[derive(Default)]
pub struct Room(Option<Waiter>);

impl Room {
    /// Nothing is waited for yet.
    pub const fn new() -> Self {
        Self(None)
    }

    /// Ready when half of what the stream had to run when this was first asked has run.
    fn poll(&mut self, stream: &Stream, task: &mut Context<'_>) -> Poll<Result<()>> {
        let mut waiter = match self.0.take() {
            Some(waiter) => waiter,
            None => stream.waiter(stream.last().number.saturating_sub(MAX_IN_FLIGHT / 2))?,
        };
        let polled = waiter.poll(task);
        if polled.is_pending() {
            self.0 = Some(waiter);
        }
        polled
    }
}

impl Clone for Room {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Room({})", if self.0.is_some() { "waits" } else { "does not wait" })
    }
}

impl ExecutionContext {
    /// Ready when the stream has less than [`MAX_IN_FLIGHT`] submissions to run: a driver would hold up the
    /// thread that enqueues many more. At once where nothing may wait.
    #[inline]
    pub fn poll_room(&self, room: &mut Room, task: &mut Context<'_>) -> Poll<Result<()>> {
        let stream = self.stream()?;
        if stream.in_flight() < MAX_IN_FLIGHT || self.run() == Run::Detached {
            return Poll::Ready(Ok(()));
        }
        wait_for_room(stream, room, task)
    }
}

/// Asks again once there was room: others may have taken it.
#[cold]
fn wait_for_room(stream: &Stream, room: &mut Room, task: &mut Context<'_>) -> Poll<Result<()>> {
    while stream.in_flight() >= MAX_IN_FLIGHT {
        ready!(room.poll(stream, task))?;
    }
    Poll::Ready(Ok(()))
}
