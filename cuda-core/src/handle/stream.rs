//! Streams: handles of ordered queues of work. `submit` holds the way of a submission.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{allocation::Allocation, device::Device, event::Event, recorder::Recorder, sent::Sent};
use crate::{
    order::{Waiter, progress::Progress, timeline::Timeline},
    protocol::{AllocId, Control, Error, RawStream, Result, StreamId, Ticket, Work},
};

/// An ordered queue of work on a device.
///
/// Work on one stream runs in order. The library orders work on different streams that uses the same buffer. Dropping
/// the last handle lets the enqueued work run on.
///
/// A clone is another handle of the same stream. Every handle counts its own submissions: [`last`](Stream::last) and
/// [`outcome`](Stream::outcome) are about these.
pub struct Stream {
    shared: Arc<Shared>,
    sent: Sent,
}

struct Shared {
    device: Device,
    timeline: Arc<Timeline>,
    on_drop: OnDrop,
    /// Of a stream of a recording.
    recorded: Option<Recorded>,
}

/// The parts of a stream of a recording. The device knows no such stream.
struct Recorded {
    recorder: Arc<Recorder>,
    /// The live stream on which memory is allocated.
    home: Stream,
}

/// The action on a stream when its last handle is dropped.
#[derive(Clone, Copy)]
pub(super) enum OnDrop {
    Destroy,
    Recycle,
    /// For a stream of a recording.
    Nothing,
}

impl Device {
    /// A new stream.
    ///
    /// # Errors
    /// An error of the backend.
    pub fn new_stream(&self) -> Result<Stream> {
        self.new_stream_with_priority(0)
    }

    /// A new stream with a priority. Lower numbers run first, and 0 is the default. A device uses the nearest priority
    /// that it has; one without priorities ignores it.
    ///
    /// # Errors
    /// An error of the backend.
    pub fn new_stream_with_priority(&self, priority: i32) -> Result<Stream> {
        self.core().reclaim_all();
        Ok(Stream::new(self.clone(), self.core().create_stream(priority)?, OnDrop::Destroy))
    }

    /// Borrows a stream from the device's pool, because creating one is slow. An idle stream is preferred. The stream
    /// goes back to the pool when its last handle is dropped, also with work in flight.
    ///
    /// # Errors
    /// An error of the backend.
    pub fn lend_stream(&self, priority: i32) -> Result<Stream> {
        self.lend(priority, self.core().spare_streams.take(priority))
    }

    /// As [`lend_stream`](Device::lend_stream), but only a stream that is known to be idle. Creates one if the pool has
    /// none.
    ///
    /// # Errors
    /// An error of the backend.
    pub fn lend_idle_stream(&self, priority: i32) -> Result<Stream> {
        self.lend(priority, self.core().spare_streams.take_idle(priority))
    }

    fn lend(&self, priority: i32, spare: Option<Arc<Timeline>>) -> Result<Stream> {
        let timeline = spare.map_or_else(|| self.core().create_stream(priority), Ok)?;
        Ok(Stream::new(self.clone(), timeline, OnDrop::Recycle))
    }
}

impl Stream {
    fn new(device: Device, timeline: Arc<Timeline>, on_drop: OnDrop) -> Self {
        Self::with(Shared { device, timeline, on_drop, recorded: None })
    }

    fn with(shared: Shared) -> Self {
        Self { shared: Arc::new(shared), sent: Sent::new() }
    }

    /// A stream of a recording, which allocates on `home`.
    pub(super) fn recording(home: Stream, recorder: Arc<Recorder>) -> Self {
        let device = home.device().clone();
        let id = StreamId(device.core().next_id());
        let timeline = Timeline::new(id, home.priority(), true);
        let recorded = Some(Recorded { recorder, home });
        Self::with(Shared { device, timeline, on_drop: OnDrop::Nothing, recorded })
    }

    /// Another stream: one of the same recording, or one with the same priority that the device
    /// [lends](Device::lend_stream).
    ///
    /// # Errors
    /// An error of the backend.
    #[doc(hidden)]
    pub fn lend_branch(&self) -> Result<Stream> {
        match &self.shared.recorded {
            Some(Recorded { recorder, home }) => {
                Ok(Self::recording(home.clone(), recorder.clone()))
            }
            None => self.device().lend_stream(self.priority()),
        }
    }

    /// Whether work that is submitted here is recorded and does not run.
    #[doc(hidden)]
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.shared.recorded.is_some()
    }

    /// The recorder, if this is a stream of a recording.
    #[inline]
    pub(super) fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.shared.recorded.as_ref().map(|recorded| &recorded.recorder)
    }

    #[inline]
    pub(super) fn timeline(&self) -> &Arc<Timeline> {
        &self.shared.timeline
    }

    #[inline]
    pub(super) fn progress(&self) -> &Progress {
        &self.timeline().progress
    }

    /// Its id among the streams of its device.
    #[inline]
    pub fn id(&self) -> StreamId {
        self.timeline().id
    }

    /// Its priority. Lower numbers run first where the device knows priorities.
    pub fn priority(&self) -> i32 {
        self.timeline().priority
    }

    /// The device it belongs to.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// The last submission that was made through this handle. Its number is 0 if there is none.
    #[inline]
    pub fn last(&self) -> Ticket {
        Ticket { stream: self.id(), number: self.sent.last() }
    }

    /// The number of submissions so far, through all handles.
    #[inline]
    pub fn submitted(&self) -> u64 {
        self.timeline().published()
    }

    /// Whether everything submitted so far is known to have run. Does not ask the device.
    #[inline]
    pub fn is_known_idle(&self) -> bool {
        self.in_flight() == 0
    }

    /// Submissions that are not known to have run. Does not ask the device.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.timeline().in_flight()
    }

    /// Whether another thread is submitting to it at this moment, so that a submission now would wait for that.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.timeline().order.is_locked()
    }

    /// Asks the device, without blocking, whether everything submitted so far has run.
    ///
    /// # Errors
    /// The error that lost the device.
    pub fn query(&self) -> Result<bool> {
        if self.is_recording() {
            return Err(Error::NeedsHostData);
        }
        let last = self.timeline().published();
        self.device().core().query(self.timeline())?;
        Ok(self.progress().completed() >= last)
    }

    /// Blocks the calling thread until everything submitted so far, through any handle, has run.
    ///
    /// # Errors
    /// The first failure among the submissions of this handle, or the error that lost the device.
    pub fn synchronize(&self) -> Result<()> {
        let last = self.timeline().published();
        self.synchronize_to(last)
    }

    /// Blocks the calling thread until submission `number` has run.
    ///
    /// # Errors
    /// As [`synchronize`](Stream::synchronize).
    #[inline]
    pub fn synchronize_to(&self, number: u64) -> Result<()> {
        let synchronized = self.device().core().synchronize(self.timeline(), number);
        if synchronized.is_ok() && self.sent.is_flawless(self, number) {
            return Ok(());
        }
        self.outcome(number).unwrap_or(synchronized)
    }

    /// A waiter for submission `number`; blocks no thread. Asks the device for a report if the submission is not known
    /// to be complete.
    ///
    /// # Errors
    /// The error of the backend if it refuses to report.
    pub fn waiter(&self, number: u64) -> Result<Waiter> {
        let number = number.min(self.timeline().published());
        if self.progress().completed() < number {
            self.device().core().try_want(Ticket { stream: self.id(), number })?;
        }
        Ok(Waiter::new(self.timeline().clone(), number))
    }

    /// Requests a report for the submissions of this handle before another handle submits behind them. It applies to
    /// submissions from now on.
    ///
    /// For a task that waits later: a report covers everything submitted until it is requested. If the task requested
    /// it only when it waits, it would also wait for the later work of other handles.
    pub fn report_before_others(&self) {
        self.sent.set_awaited();
    }

    /// Begins a submission: takes the next number. If a task awaits the last submission of another handle, requests the
    /// report of that one before this one follows it. Called with the order lock held.
    #[inline]
    pub(super) fn reserve(&self) -> Ticket {
        let ticket = self.timeline().reserve();
        if !self.sent.continues_with(ticket.number)
            && let Some(number) = self.timeline().take_awaited()
        {
            self.device().core().want(Ticket { number, ..ticket });
        }
        ticket
    }

    /// The result of the submissions that this handle made up to `number`, if that one is known to be complete: the
    /// first failure among them. A failure is reported once. Does not ask the device.
    #[inline]
    pub fn outcome(&self, number: u64) -> Option<Result<()>> {
        self.sent.outcome(self, number)
    }

    /// The first failure among the submissions of this handle, without regard to whether they are complete.
    pub(super) fn sent_failure(&self) -> Result<()> {
        self.sent.failure(self)
    }

    /// Returns the first failure of a submission of this handle; else the error that lost the device; else, while
    /// submissions of this handle are in flight, the device's latest fault. Does not ask the device.
    #[cold]
    pub fn fault(&self) -> Option<Error> {
        if self.is_recording() {
            return None;
        }
        if let Err(error) = self.sent_failure() {
            return Some(error);
        }
        let in_flight = self.progress().completed() < self.last().number;
        let fault = || self.device().core().streams.last_fault();
        self.progress().ended().or_else(|| if in_flight { fault() } else { None })
    }

    /// Marks this point of the stream.
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
        self.submit_after(&Work::Join, &[], tickets, None, None)
    }

    /// Orders later work on this stream after all submissions of the handle `other`. This handle counts those
    /// submissions as its own, so it also reports their failures.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or an error of the device.
    pub fn join_stream(&self, other: &Stream) -> Result<Ticket> {
        self.join_streams(std::iter::once(other))
    }

    /// As [`join_stream`](Stream::join_stream) for several handles, with one submission for all of them.
    ///
    /// # Errors
    /// As [`join_stream`](Stream::join_stream).
    pub fn join_streams<'a>(&self, others: impl IntoIterator<Item = &'a Stream>) -> Result<Ticket> {
        let mut tickets = SmallVec::<[Ticket; 4]>::new();
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
            // A join of complete work orders nothing, and a task would wait for the report of the join.
            if other.progress().completed() >= last.number {
                continue;
            }
            if last.stream != self.id() {
                tickets.push(last);
            }
            let timeline = other.timeline();
            if !self.device().core().capabilities.ordered_visibility
                && !timeline.retention.is_empty()
            {
                self.device().core().want(last);
            }
        }
        match tickets.is_empty() {
            true => Ok(self.last()),
            false => self.join(&tickets),
        }
    }

    /// The ticket of another stream to come after, where one of the two belongs to a recording. There is none for a live
    /// stream in a recording: its work was submitted before every replay, and each replay is ordered after the uses of
    /// the same memory.
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

    /// Counts a node of a recording. Nothing can wait for it: its outcome is [`Error::NeedsHostData`] at once. Called
    /// with the order lock held.
    pub(super) fn publish_recorded(&self, number: u64) -> Ticket {
        let ticket = Ticket { stream: self.id(), number };
        self.progress().fail(number, Error::NeedsHostData);
        drop(self.progress().advance(number));
        self.publish(ticket);
        ticket
    }

    /// A second handle of the stream. It counts the submissions of this handle up to now as its own, unlike a clone.
    pub fn snapshot(&self) -> Stream {
        let handle = self.clone();
        handle.sent.join_runs(&self.sent);
        handle
    }

    /// Runs foreign code that enqueues on the raw stream, and counts what it enqueues as one submission.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the device is no GPU of this process, or the error of `submit`.
    ///
    /// # Safety
    /// - Device memory of this library that the enqueued commands access is used by no unordered work on another
    ///   stream, unless both only read.
    /// - Host memory that the commands access stays valid until they have run.
    /// - `submit` passes this stream to no function of this library.
    pub unsafe fn submit_foreign(
        &self,
        submit: &mut dyn FnMut(RawStream) -> Result<()>,
    ) -> Result<Ticket> {
        let backend = &self.device().core().backend;
        if self.is_recording() {
            let what = "foreign submissions inside a recording";
            return Err(Error::unsupported(what, &self.device().info().address));
        }
        let Some(foreign) = backend.foreign() else {
            return Err(Error::unsupported("foreign submissions", &self.device().info().address));
        };
        let _order = self.timeline().order.lock();
        let ticket = self.reserve();
        // SAFETY: the caller promises it.
        let submitted = unsafe { foreign.submit(ticket, &[], submit) };
        submitted.inspect_err(|_| self.timeline().give_back(ticket))?;
        self.publish(ticket);
        Ok(ticket)
    }

    /// Allocates in the order of a stream; usable on every stream of the device at once. The contents are unspecified.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or an error of the device.
    pub fn allocate(&self, bytes: u64) -> Result<Arc<Allocation>> {
        if let Some(Recorded { home, .. }) = &self.shared.recorded {
            return home.allocate(bytes);
        }
        let device = self.device().clone();
        let core = device.core();
        core.reclaim_memory();
        let (id, charged) = (AllocId(core.next_id()), bytes.max(1));
        core.charge.charge(charged)?;
        let allocate = |at: Ticket| {
            // SAFETY: gives nothing up.
            unsafe { core.backend.control(Control::Allocate { id, bytes: charged, at }) }
        };
        // Made only once the backend took the allocation: dropping it frees.
        let ticket = self.submit_control(allocate).inspect_err(|_| core.charge.credit(charged))?;
        Ok(Allocation::new(device, id, bytes, ticket))
    }

    /// Submits a control that takes a ticket.
    fn submit_control(&self, send: impl FnOnce(Ticket) -> Result<()>) -> Result<Ticket> {
        let _order = self.timeline().order.lock();
        let ticket = self.reserve();
        send(ticket).inspect_err(|_| self.timeline().give_back(ticket))?;
        self.publish(ticket);
        Ok(ticket)
    }

    /// The backend has taken a submission. Called with the order lock held.
    #[inline]
    pub(super) fn publish(&self, ticket: Ticket) {
        self.timeline().publish(ticket.number);
        self.sent.count(ticket.number);
        if self.sent.is_awaited() {
            self.timeline().set_awaited(ticket.number);
        }
    }
}

impl Clone for Stream {
    /// A second handle of the stream that counts no submissions yet.
    #[inline]
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), sent: Sent::new() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        match self.on_drop {
            OnDrop::Destroy => self.device.core().retire_stream(self.timeline.id),
            OnDrop::Nothing => {}
            OnDrop::Recycle => self.device.core().spare_streams.give(self.timeline.clone()),
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({} on {})", self.id().0, self.device().info().address)
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.timeline(), other.timeline())
    }
}

impl Eq for Stream {}
