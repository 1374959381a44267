//! Joins: order later work of a stream after work of other streams.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{event::Event, stream::Stream};
use crate::protocol::{Error, Result, Ticket, Work};

impl Stream {
    /// Records an event at this point of the stream.
    pub fn record(&self) -> Event {
        let ticket = Ticket { stream: self.id(), number: self.timeline().published() };
        Event::new(self.device().clone(), ticket)
    }

    /// Orders later work on this stream after `event`. The host does not wait.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or an error of the device.
    pub fn wait_event(&self, event: &Event) -> Result<Ticket> {
        self.device().check_same("an event", event.device())?;
        self.join(&[event.ticket()])
    }

    /// Orders later work on this stream after `tickets` of other streams of the device.
    ///
    /// # Errors
    /// An error of the device.
    pub fn join(&self, tickets: &[Ticket]) -> Result<Ticket> {
        // SAFETY: uses no memory.
        unsafe { self.submit_after(&Work::Join, &[], tickets, None, None) }
    }

    /// Orders later work on this stream after all submissions of the handle `other`. This handle counts those
    /// submissions as its own, so it also reports their failures.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or an error of the device.
    pub fn join_stream(&self, other: &Stream) -> Result<Ticket> {
        self.join_streams(std::iter::once(other))
    }

    /// Does the same as [`join_stream`](Stream::join_stream) for several handles, with one submission.
    ///
    /// # Errors
    /// As [`join_stream`](Stream::join_stream).
    pub fn join_streams<'a>(&self, others: impl IntoIterator<Item = &'a Stream>) -> Result<Ticket> {
        let mut tickets = SmallVec::<[Ticket; 4]>::new();
        let mut has_later_work_of_this_stream = false;
        for other in others {
            self.device().check_same("a stream", other.device())?;
            let last = other.last();
            if last.number == 0 {
                continue;
            }
            if self.is_recording() || other.is_recording() {
                tickets.extend(self.recorded_join(other)?);
                continue;
            }
            self.sent.join(other.snapshot());
            // Skip complete work: a join would add a submission to wait for and no order.
            if other.progress().completed() >= last.number {
                continue;
            }
            if last.stream != self.id() {
                tickets.push(last);
            } else if last.number > self.last().number {
                has_later_work_of_this_stream = true;
            }
            let timeline = other.timeline();
            if !self.device().core().capabilities.ordered_visibility
                && !timeline.retention.is_empty()
            {
                self.device().core().want(last);
            }
        }
        // Work of this stream needs no order. But this handle counts the work of the other one only up to its own last
        // submission, so it makes one behind.
        match tickets.is_empty() && !has_later_work_of_this_stream {
            true => Ok(self.last()),
            false => self.join(&tickets),
        }
    }

    /// Returns the ticket to join if one of the streams belongs to a recording. There is none for a live stream in a
    /// recording: its work was submitted before every replay, and each replay is ordered after the uses of the same
    /// memory.
    #[cold]
    fn recorded_join(&self, other: &Stream) -> Result<Option<Ticket>> {
        let last = Some(other.last()).filter(|last| last.stream != self.id());
        match (self.recorder(), other.recorder()) {
            (Some(this), Some(other)) if Arc::ptr_eq(this, other) => Ok(last),
            (_, None) => Ok(None),
            (_, Some(_)) => {
                let detail = "its work runs only when the recording is replayed; use the output of the recording";
                let what = "joining a stream of a recording from outside";
                Err(Error::Misuse { what: what.into(), detail: detail.into() })
            }
        }
    }

    /// Returns a second handle of the stream. Unlike a clone, it counts the submissions of this handle up to now as its
    /// own.
    pub fn snapshot(&self) -> Stream {
        let handle = self.clone();
        handle.sent.join_runs(&self.sent);
        handle
    }
}
