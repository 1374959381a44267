//! Streams: the one way by which commands reach a device.

use std::sync::{Arc, atomic::Ordering};

use crate::{
    Command, Device, Result, StreamId,
    allocation::Allocation,
    event::Event,
    hazard::{Access, Ticket, Tickets},
    host_pool::Lease,
    progress::Waiter,
    stream_state::{Order, StreamState},
};

/// Uses of allocations by one submission.
pub(crate) type Uses<'a> = &'a [(Arc<Allocation>, Access)];

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
    pub fn id(&self) -> StreamId {
        self.0.state.id
    }

    /// The device it belongs to.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The last submission so far.
    pub fn last(&self) -> Ticket {
        Ticket { stream: self.id(), number: self.0.state.published() }
    }

    /// Whether everything submitted so far is known to have run. Asks nobody.
    pub fn is_known_idle(&self) -> bool {
        self.0.state.progress.completed() >= self.0.state.published()
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
            state.notify_at(self.device().backend(), &mut state.order.lock(), number)?;
        }
        Ok(Waiter::new(state.progress.clone(), number))
    }

    /// How submission `number` ended, if that is known. Asks nobody.
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
        Ok(self.publish())
    }

    /// Puts a command at the end of the stream, after whatever has to come before it.
    pub(crate) fn submit(
        &self,
        command: Command<'_>,
        uses: Uses<'_>,
        host: Option<&Arc<Lease>>,
    ) -> Result<Ticket> {
        self.device().inner().reclaim_memory();
        let mut order = self.0.state.order.lock();
        let mut waited = Tickets::new();
        for (allocation, access) in uses {
            self.device().check_same("a buffer", allocation.device())?;
            waited.extend(allocation.usage.lock().waits(self.id(), *access));
        }
        for ticket in &waited {
            self.wait_for(&mut order, *ticket)?;
        }
        let blocks = host.map(|lease| lease.block());
        let blocks = blocks.map_or(&[][..], std::slice::from_ref);
        // SAFETY: blocks are retained below, and given up by the right to their bytes (see `pinned`); uses of
        // device memory on other streams were waited for; a launch is what `Function::launch` was promised.
        unsafe { self.device().backend().enqueue(self.id(), command, blocks) }?;
        let ticket = self.publish();
        for (allocation, access) in uses {
            allocation.usage.lock().note(ticket, *access, &waited);
        }
        if let Some(lease) = host
            && self.0.state.retained.keep(ticket.number, lease.clone())
        {
            self.0.state.notify_at(self.device().backend(), &mut order, ticket.number)?;
        }
        Ok(ticket)
    }

    fn publish(&self) -> Ticket {
        let number = self.0.state.published.fetch_add(1, Ordering::AcqRel) + 1;
        Ticket { stream: self.id(), number }
    }

    /// Orders this stream after a ticket of another one, unless it is already.
    fn wait_for(&self, order: &mut Order, ticket: Ticket) -> Result<()> {
        if order.covers(ticket) {
            return Ok(());
        }
        let Some(producer) = self.device().inner().streams.find(ticket.stream) else {
            return Ok(());
        };
        if let Some(outcome) = producer.progress.outcome(ticket.number) {
            return outcome;
        }
        let covers = producer.published();
        self.device().inner().order_after(self.id(), &producer)?;
        order.cover(ticket.stream, covers);
        Ok(())
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
