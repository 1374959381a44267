//! Streams: the one way by which commands reach a device.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    Command, Device, Error, Result, StreamId,
    allocation::Allocation,
    event::Event,
    hazard::{Access, Ticket, Tickets},
    progress::Waiter,
    retained::Kept,
    stream_state::{Order, StreamState},
};

/// Submissions that a stream may have to run before whoever adds more should wait. Some thousand launches
/// hold up their caller inside the CUDA driver.
pub const MAX_IN_FLIGHT: u64 = 768;

/// Uses of allocations by one submission.
pub(crate) type Uses<'a> = &'a [(&'a Allocation, Access)];

/// An ordered queue of work on a device. Clones are the same stream.
///
/// Work on one stream runs in order. Between streams the library orders whatever uses the same buffer.
/// Dropping the last clone lets what is enqueued run on.
#[derive(Clone)]
pub struct Stream(Arc<StreamHandle>);

struct StreamHandle {
    device: Device,
    state: Arc<StreamState>,
    on_drop: OnDrop,
}

/// What becomes of a stream when its last handle goes.
#[derive(Clone, Copy)]
pub(crate) enum OnDrop {
    Destroy,
    Recycle,
}

impl Stream {
    pub(crate) fn new(device: Device, state: Arc<StreamState>, on_drop: OnDrop) -> Self {
        Self(Arc::new(StreamHandle { device, state, on_drop }))
    }

    /// Its name among the streams of its device.
    #[inline]
    pub fn id(&self) -> StreamId {
        self.0.state.id
    }

    /// What it was made with; lower ones run first where the device knows priorities.
    pub fn priority(&self) -> i32 {
        self.0.state.priority
    }

    /// The device it belongs to.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The last submission so far.
    #[inline]
    pub fn last(&self) -> Ticket {
        Ticket { stream: self.id(), number: self.0.state.published() }
    }

    /// Whether everything submitted so far is known to have run. Asks nobody.
    #[inline]
    pub fn is_known_idle(&self) -> bool {
        self.0.state.progress.completed() >= self.0.state.published()
    }

    /// Submissions that are not known to have run. Asks nobody.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        let completed = self.0.state.progress.completed();
        self.0.state.published().saturating_sub(completed)
    }

    /// Whether a thread is submitting to it at this moment: another one that submits now waits for that.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.0.state.order.is_locked()
    }

    /// Asks the device, without blocking, whether everything submitted so far has run.
    ///
    /// # Errors
    /// What the stream met.
    pub fn query(&self) -> Result<bool> {
        self.device().inner().query(&self.0.state)
    }

    /// Blocks the calling thread until everything submitted so far has run.
    ///
    /// # Errors
    /// What the stream met.
    pub fn synchronize(&self) -> Result<()> {
        self.device().inner().synchronize(&self.0.state)
    }

    /// Waits for submission `number` without a thread: asks the device to tell when it has run.
    ///
    /// # Errors
    /// What the backend says if it cannot be asked.
    pub fn waiter(&self, number: u64) -> Result<Waiter> {
        let state = &self.0.state;
        let number = number.min(state.published());
        if state.progress.completed() < number {
            state.notify_at(self.device().backend(), number)?;
        }
        Ok(Waiter::new(state.progress.clone(), number))
    }

    /// How submission `number` ended, if that is known. Asks nobody.
    #[inline]
    pub fn outcome(&self, number: u64) -> Option<Result<()>> {
        self.0.state.progress.outcome(number)
    }

    /// Marks this point of the stream.
    ///
    /// # Errors
    /// What the backend says.
    pub fn record(&self) -> Result<Event> {
        let covers = self.last();
        Event::record(self.device(), covers)
    }

    /// Orders everything submitted to this stream from now on after `event`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice), or what the backend says.
    pub fn wait_event(&self, event: &Event) -> Result<Ticket> {
        self.device().check_same("an event", event.device())?;
        let mut order = self.0.state.order.lock();
        self.wait_recorded(&mut order, event)?;
        let ticket = Ticket { stream: self.id(), number: self.0.state.published() + 1 };
        self.0.state.publish(ticket.number);
        Ok(ticket)
    }

    /// Puts a command at the end of the stream, after whatever has to come before it.
    pub(crate) fn submit(
        &self,
        command: Command<'_>,
        uses: Uses<'_>,
        keep: Option<Kept>,
    ) -> Result<Ticket> {
        let (device, state) = (self.device(), &*self.0.state);
        device.inner().reclaim_memory();
        for (allocation, _) in uses {
            device.check_same("a buffer", allocation.device())?;
        }
        let mut order = state.order.lock();
        let ticket = Ticket { stream: state.id, number: state.published() + 1 };
        let mut waits = Tickets::new();
        let mut owed: SmallVec<[usize; 4]> = SmallVec::new();
        for (allocation, access) in uses {
            allocation.usage.lock().claim(ticket, *access, &mut waits);
            owed.push(waits.len());
        }
        if !waits.is_empty()
            && let Err(error) = self.wait_for_all(&mut order, &waits, &owed, uses)
        {
            return Err(self.refused(ticket, error));
        }
        let blocks = match &keep {
            Some(Kept::Host(lease)) => std::slice::from_ref(lease.block()),
            _ => &[],
        };
        // SAFETY: blocks and other devices' memory are retained below, and given up by those who had the right to
        // their bytes (see `pinned` and `peer`); uses of device memory on other streams were waited for; a launch
        // is what `Function::launch` was promised; what the command names is held by whoever submits it.
        let enqueued = unsafe { device.backend().enqueue(state.id, command, blocks) };
        if let Err(error) = enqueued {
            return Err(if waits.is_empty() { error } else { self.refused(ticket, error) });
        }
        // Kept first: whoever sees the submission sees that it has something on the host.
        let kept = keep.is_some_and(|keep| state.retained.keep(ticket.number, keep));
        state.publish(ticket.number);
        let many = state.is_notice_due();
        if many || kept {
            // The command is in. If nobody can be asked how far the stream is, whoever waits is told.
            let _ = state.notify_at(device.backend(), ticket.number);
        }
        Ok(ticket)
    }

    /// Nothing was submitted, but waits were put in and stand for what they wait for: a submission without
    /// a command. Without it the stream would count as idle, and could go before they are over.
    #[cold]
    fn refused(&self, ticket: Ticket, error: Error) -> Error {
        self.0.state.publish(ticket.number);
        error
    }

    /// Orders this stream after what `uses` have claimed to stand for; those of the first stand before `owed[0]`,
    /// and so on. What cannot be waited for goes back to where it came from: a later user finds it there.
    #[cold]
    fn wait_for_all(
        &self,
        order: &mut Order,
        waits: &Tickets,
        owed: &[usize],
        uses: Uses<'_>,
    ) -> Result<()> {
        let keep = |index: usize| {
            let owner = owed.partition_point(|end| *end <= index);
            if let Some((allocation, _)) = uses.get(owner) {
                allocation.usage.lock().keep(waits[index]);
            }
        };
        for (index, ticket) in waits.iter().enumerate() {
            match self.wait_for(order, *ticket) {
                Ok(true) => {}
                Ok(false) => keep(index),
                Err(error) => {
                    (index..waits.len()).for_each(keep);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Orders this stream after a ticket of another one, unless it is already. False if that submission is
    /// being made just now: then it comes after what was before it.
    fn wait_for(&self, order: &mut Order, ticket: Ticket) -> Result<bool> {
        if order.covers(ticket) {
            return Ok(true);
        }
        let Some(producer) = self.device().inner().streams.find(ticket.stream) else {
            return Ok(true);
        };
        if let Some(outcome) = producer.progress.outcome(ticket.number) {
            return outcome.map(|()| true);
        }
        let covers = producer.published();
        self.device().inner().order_after(self.id(), &producer)?;
        order.cover(ticket.stream, covers);
        self.0.state.implied.note(self.0.state.published() + 1, &producer, covers);
        Ok(covers >= ticket.number)
    }

    fn wait_recorded(&self, order: &mut Order, event: &Event) -> Result<()> {
        let Ticket { stream, number } = event.ticket();
        if stream == self.id() || number == 0 {
            return Ok(());
        }
        // SAFETY: touches no memory.
        unsafe {
            self.device().backend().enqueue(self.id(), Command::Wait { event: event.id() }, &[])
        }?;
        order.cover(stream, number);
        if let Some(producer) = self.device().inner().streams.find(stream) {
            self.0.state.implied.note(self.0.state.published() + 1, &producer, number);
        }
        Ok(())
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        match self.on_drop {
            OnDrop::Destroy => self.device.inner().retire_stream(self.state.id),
            OnDrop::Recycle => self.device.inner().spare_streams.give(self.state.clone()),
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
        Arc::ptr_eq(&self.0.state, &other.0.state)
    }
}

impl Eq for Stream {}
