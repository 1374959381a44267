//! Joins and events: order later work of a stream after work of other streams.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    handle::{
        device::Device,
        stream::{stream::Stream, submit::Attached},
    },
    protocol::{Error, Misuse, Result, Ticket, Work},
};

impl Stream {
    /// Records an event at this point of the stream.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let (stream, other) = (device.new_stream()?, device.new_stream()?);
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// let zeroed = stream.record(); // a ticket: no call of the driver
    /// other.wait_event(&zeroed)?; // later work on `other` comes after it
    /// # Ok::<(), Error>(())
    /// ```
    pub fn record(&self) -> Event {
        let ticket = Ticket { stream: self.id(), number: self.timeline().published() };
        Event::new(self.device().clone(), ticket)
    }

    /// Orders later work on this stream after `event`. The host does not wait.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let (stream, other) = (device.new_stream()?, device.new_stream()?);
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// other.wait_event(&stream.record())?;
    /// other.synchronize()?; // the work of `stream` is complete too
    /// assert!(stream.query()?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or an error of the device.
    pub fn wait_event(&self, event: &Event) -> Result<Ticket> {
        self.device().check_same("an event", event.device())?;
        self.join(&[event.ticket()])
    }

    /// Orders later work on this stream after `tickets` of other streams of the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let (stream, other) = (device.new_stream()?, device.new_stream()?);
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// other.join(&[stream.last()])?; // later work on `other` comes after the last submission of `stream`
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// An error of the device.
    pub fn join(&self, tickets: &[Ticket]) -> Result<Ticket> {
        // SAFETY: uses no memory.
        unsafe { self.submit(&Work::Join, &[], Attached { after: tickets, ..Attached::default() }) }
    }

    /// Orders later work on this stream after all submissions of the handles `others`, with one submission. This handle
    /// counts those submissions as its own, so it also reports their failures.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let (stream, other) = (device.new_stream()?, device.new_stream()?);
    /// let (a, b) = (DeviceBuffer::<u32>::zeroed(&stream, 4)?, DeviceBuffer::<u32>::zeroed(&other, 4)?);
    /// let end = device.new_stream()?;
    /// end.join_streams([&stream, &other])?;
    /// end.synchronize()?; // both are complete; also reports failures of the work of `stream` and `other`
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or an error of the device.
    pub fn join_streams<'a>(&self, others: impl IntoIterator<Item = &'a Stream>) -> Result<Ticket> {
        join_handles(self, others, false)
    }

    /// Returns a second handle of the stream. Unlike a clone, it counts the submissions of this handle up to now as its
    /// own.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    /// let (snapshot, clone) = (stream.snapshot(), stream.clone());
    /// assert_eq!(snapshot.last(), stream.last());
    /// assert_eq!(clone.last().number, 0); // counts its own submissions only
    /// # Ok::<(), Error>(())
    /// ```
    pub fn snapshot(&self) -> Stream {
        let handle = self.clone();
        handle.sent.join_runs(&self.sent);
        handle
    }
}

/// Joins handles as [`Stream::join_streams`] does. No other handle waits for their submissions, so they are cancelled
/// together with those of `stream`.
///
/// # Errors
/// The errors of [`Stream::join_streams`].
pub fn join_parts<'a>(
    stream: &Stream,
    others: impl IntoIterator<Item = &'a Stream>,
) -> Result<Ticket> {
    join_handles(stream, others, true)
}

fn join_handles<'a>(
    stream: &Stream,
    others: impl IntoIterator<Item = &'a Stream>,
    are_parts: bool,
) -> Result<Ticket> {
    let mut tickets = SmallVec::<[Ticket; 4]>::new();
    let mut has_later_work_of_this_stream = false;
    for other in others {
        stream.device().check_same("a stream", other.device())?;
        let last = other.last();
        if last.number == 0 {
            continue;
        }
        if stream.is_recording() || other.is_recording() {
            tickets.extend(recorded_join(stream, other)?);
            continue;
        }
        stream.sent.join(other.snapshot(), are_parts);
        // Skip complete work: a join would add a submission to wait for and no order.
        if other.timeline().progress.completed() >= last.number {
            continue;
        }
        if last.stream != stream.id() {
            tickets.push(last);
        } else if last.number > stream.last().number {
            has_later_work_of_this_stream = true;
        }
        let timeline = other.timeline();
        if !stream.device().core().capabilities.ordered_visibility && !timeline.retention.is_empty()
        {
            stream.device().core().want(last);
        }
    }
    // Work of this stream needs no order. But this handle counts the work of the other one only up to its own last
    // submission, so it makes one behind.
    match tickets.is_empty() && !has_later_work_of_this_stream {
        true => Ok(stream.last()),
        false => stream.join(&tickets),
    }
}

/// Returns the ticket that `this` joins if one of the streams belongs to a recording. There is none for a live stream
/// in a recording: its work was submitted before every replay, and each replay is ordered after the uses of the same
/// memory.
#[cold]
fn recorded_join(this: &Stream, other: &Stream) -> Result<Option<Ticket>> {
    let last = Some(other.last()).filter(|last| last.stream != this.id());
    match (this.recorder(), other.recorder()) {
        (Some(this), Some(other)) if Arc::ptr_eq(this, other) => Ok(last),
        (_, None) => Ok(None),
        (_, Some(_)) => Err(Error::Misuse(Misuse::JoinsRecording)),
    }
}

/// A point of a stream that other streams can be ordered after.
///
/// Made by [`Stream::record`](super::Stream::record), used by [`Stream::wait_event`](super::Stream::wait_event). It is
/// a ticket: recording one calls no driver.
#[derive(Debug, Clone)]
pub struct Event {
    device: Device,
    ticket: Ticket,
}

impl Event {
    pub(super) fn new(device: Device, ticket: Ticket) -> Self {
        Self { device, ticket }
    }

    /// Returns the ticket of the last submission before the event.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Returns the device of the event.
    pub fn device(&self) -> &Device {
        &self.device
    }
}
