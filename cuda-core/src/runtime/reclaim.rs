//! Reclaiming: the dropped resources that still have to be given back to the device. `Drop` only pushes them to the
//! queues in [`Dropped`], which `reclaim_memory` and `reclaim_all` empty.
//!
//! A queue is a list that many threads push to, and from which one call takes all items. A check for items takes no
//! lock.
//!
//! A free is a control on the stream of the last use. The next submission, synchronization or notice sends it, but a
//! synchronization keeps a little memory for reuse. A stream is retired, and a module unloaded, once everything that
//! used it is known to be complete. Synchronizations, module loads, new streams and notices check for that.
//!
//! Submissions that no caller waits for any more are cancelled together with the frees. [`Control::Cancel`] is a hint, so
//! one that arrives late does no harm.

use std::{
    any::Any,
    sync::{Arc, atomic::AtomicUsize as Counter},
    time::{Duration, Instant},
};

use smallvec::SmallVec;

use crate::{
    protocol::{AllocId, Control, ForeignOwner, GraphId, ModuleId, PoolId, StreamId, Ticket},
    runtime::{
        device_core::DeviceCore,
        memory::{DropsPools, PoolCore},
    },
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The maximum time that a thread waits for frees of other threads. Frees take microseconds, but a busy system may
/// pause the other thread for tens of milliseconds. The limit ends the wait if this thread is itself inside a free, or
/// if other threads free without a pause.
const MAX_FREEING: Duration = Duration::from_secs(1);

/// The maximum number of bytes that stay allocated for reuse after a wait. The scratch memory of a library call has
/// half of it.
const MAX_KEPT: u64 = 64 << 20;

/// The maximum number of cancelled ranges that are not sent to the device yet, 128 KiB. Work of further ranges is not
/// cancelled, so it runs.
const MAX_CANCELLED: usize = 4096;

/// The queues of dropped resources that still have to be given back to the device.
#[derive(Default)]
pub(crate) struct Dropped {
    pub(super) frees: Inbox<Freed>,
    /// At most [`MAX_CANCELLED`].
    cancelled: Inbox<Cancelled>,
    /// The number of threads that have taken `frees` and not yet freed all of it.
    freeing: Counter,
    /// With the ticket whose report was requested last.
    pub(super) others: Inbox<(Retired, Option<Ticket>)>,
}

impl Dropped {
    /// Counts this thread as one that frees, until the value is dropped.
    pub(super) fn count_freeing(&self) -> impl Drop {
        struct Freeing<'a>(&'a Counter);
        impl Drop for Freeing<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.freeing.fetch_add(1, Ordering::SeqCst);
        Freeing(&self.freeing)
    }

    pub(super) fn is_freeing(&self) -> bool {
        self.freeing.load(Ordering::SeqCst) > 0
    }
}

/// Submissions that no caller waits for any more.
pub(crate) struct Cancelled {
    pub(crate) stream: StreamId,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Whether no caller reads the host memory of the downloads among them either.
    pub(crate) downloads: bool,
}

impl Cancelled {
    /// Adds this to the ranges that are not sent yet: to the newest one if it follows it directly, else behind it.
    fn add_to(self, ranges: &mut Vec<Self>) {
        let follows = |newest: &&mut Self| {
            (newest.stream, newest.downloads) == (self.stream, self.downloads)
                && newest.last.checked_add(1) == Some(self.first)
        };
        if let Some(newest) = ranges.last_mut().filter(follows) {
            newest.last = self.last;
        } else if ranges.len() < MAX_CANCELLED {
            ranges.push(self);
        }
    }
}

/// An allocation that was dropped.
pub(crate) struct Freed {
    pub(crate) id: AllocId,
    /// Its size, and the bytes that it was charged with.
    pub(crate) bytes: u64,
    /// The last use per stream.
    pub(crate) last_uses: SmallVec<[Ticket; 4]>,
    pub(crate) origin: Origin,
}

/// The count that an allocation was charged to, besides that of the device.
pub(crate) enum Origin {
    /// The default pool.
    Default,
    /// Another pool. Dropped after the free was sent.
    Pool(Arc<PoolCore>),
    /// Memory of no pool.
    NoPool,
}

/// A graph, a module, a pool, a stream or foreign memory that was dropped, or launches whose graph was.
pub(super) enum Retired {
    /// Dropped at once: every launch of it is complete.
    Graph(GraphId),
    /// Unloaded once all of these are known to be complete.
    Module(ModuleId, Vec<Ticket>),
    /// Dropped at once: every allocation of it was freed.
    Pool(PoolId),
    /// Destroyed once it has run everything.
    Stream(StreamId),
    /// The last launch on a stream, which retains the resources of the launches. A report of it is requested.
    Launch(Ticket),
    /// Foreign memory. Forgotten, and its owner dropped, once all of the tickets are known to be complete.
    Foreign(AllocId, Vec<Ticket>, ForeignOwner),
}

impl DeviceCore {
    pub(crate) fn retire_allocation(&self, freed: Freed) {
        self.dropped.frees.push(freed);
    }

    /// Queues submissions to be cancelled, unless they are known to be complete or the backend does not skip work.
    pub(crate) fn cancel(&self, cancelled: Cancelled) {
        let Cancelled { stream, first, last: number, .. } = cancelled;
        if self.capabilities.cancels
            && first <= number
            && !self.streams.is_complete(Ticket { stream, number })
        {
            self.dropped.cancelled.change(|ranges| cancelled.add_to(ranges));
        }
    }

    /// Queues a graph to be dropped. All its launches are complete: their resources held the executable until then.
    pub(crate) fn retire_graph(&self, id: GraphId) {
        self.retire_later(Retired::Graph(id));
    }

    /// Queues a module to be unloaded, after everything that was submitted so far: its launches may be on any stream.
    pub(crate) fn retire_module(&self, id: ModuleId) {
        self.retire_later(Retired::Module(id, self.streams.last_tickets()));
    }

    /// Queues the request for a report of a launch, which releases the resources that its stream retains.
    pub(crate) fn retire_launch(&self, launch: Ticket) {
        self.retire_later(Retired::Launch(launch));
    }

    /// Queues foreign memory to be given back after its last uses. The helper thread does this also while the device is
    /// idle, because another allocator waits for the memory.
    pub(crate) fn retire_foreign(
        self: &Arc<Self>,
        id: AllocId,
        last_uses: Vec<Ticket>,
        owner: ForeignOwner,
    ) {
        self.retire_later(Retired::Foreign(id, last_uses, owner));
        let core = Arc::downgrade(self);
        // Without the thread, the next submission that waits gives it back.
        _ = self.helper.run(move || {
            if let Some(core) = core.upgrade() {
                core.reclaim_all();
            }
        });
    }

    fn retire_later(&self, retired: Retired) {
        self.dropped.others.push((retired, None));
    }

    pub(crate) fn retire_stream(&self, id: StreamId) {
        self.retire_later(Retired::Stream(id));
    }

    /// Frees memory that was dropped, and cancels submissions that no caller waits for. Never blocks.
    #[inline]
    pub(crate) fn reclaim_memory(&self) {
        if !self.dropped.cancelled.is_empty() {
            self.send_all_cancelled();
        }
        if !self.dropped.frees.is_empty() {
            self.free_all();
        }
    }

    #[cold]
    fn send_all_cancelled(&self) {
        self.dropped.cancelled.take().into_iter().for_each(|range| self.send_cancelled(range));
    }

    pub(crate) fn send_cancelled(&self, range: Cancelled) {
        let Cancelled { stream, first, last, downloads } = range;
        // SAFETY: the control frees, retires, drops and unloads nothing.
        unsafe { self.send(Control::Cancel { stream, first, last, downloads }) };
    }

    /// Takes dropped memory whose free is not sent yet, for reuse on `stream`. It has this size and pool, and each use
    /// on another stream is complete. It stays charged.
    ///
    /// Returns `None` if there is no such memory or the backend does not allow reuse. Also if tasks wait for memory,
    /// because a free may serve them first.
    #[inline]
    pub(crate) fn take_dropped(
        &self,
        pool: Option<&Arc<PoolCore>>,
        bytes: u64,
        stream: StreamId,
    ) -> Option<AllocId> {
        if !self.capabilities.reuses_memory || self.memory_waiters.has_any() {
            return None;
        }
        let taken = self.dropped.frees.take_last(|freed| {
            let same_pool = match (&freed.origin, pool) {
                (Origin::Default, None) => true,
                (Origin::Pool(of), Some(pool)) => Arc::ptr_eq(of, pool),
                _ => false,
            };
            let is_past =
                |ticket: &Ticket| ticket.stream == stream || self.streams.is_complete(*ticket);
            freed.bytes == bytes && same_pool && freed.last_uses.iter().all(is_past)
        });
        taken.map(|freed| freed.id)
    }

    #[cold]
    fn free_all(&self) {
        // Counted before the memory is taken, so a thread that finds none knows that this one has it.
        let freeing = self.dropped.count_freeing();
        self.dropped.frees.take().iter().for_each(|freed| self.free(freed));
        drop(freeing);
        self.memory_waiters.wake();
    }

    /// Waits until other threads have freed the memory that they have taken out of the queue, but not longer than
    /// [`MAX_FREEING`].
    #[cold]
    pub(crate) fn wait_for_frees(&self) {
        let begin = Instant::now();
        while self.dropped.is_freeing() && begin.elapsed() < MAX_FREEING {
            std::thread::yield_now();
        }
    }

    /// Gives back every dropped resource that no work uses any more. Never blocks.
    #[inline]
    pub(crate) fn reclaim_all(&self) {
        self.reclaim_memory();
        self.reclaim_others();
    }

    /// Gives back every dropped resource but memory that no work uses any more.
    #[inline]
    fn reclaim_others(&self) {
        if !self.dropped.others.is_empty() {
            self.retire_others();
        }
    }

    /// As [`reclaim_all`](Self::reclaim_all), for the thread that has waited for a stream: it often allocates the same
    /// sizes again. So up to [`MAX_KEPT`] bytes of dropped memory are kept for reuse. The next submission frees them,
    /// or any allocation that would fail.
    #[inline]
    pub(crate) fn reclaim_after_wait(&self) {
        if !self.dropped.frees.is_empty() && !self.keeps_dropped() {
            self.free_all();
        }
        self.reclaim_others();
    }

    /// Whether the dropped memory may be used again and is small.
    fn keeps_dropped(&self) -> bool {
        let bytes = |freed: &mut [Freed]| freed.iter().map(|freed| freed.bytes).sum::<u64>();
        self.capabilities.reuses_memory
            && !self.memory_waiters.has_any()
            && self.dropped.frees.with_all(bytes) <= MAX_KEPT
    }

    #[cold]
    fn retire_others(&self) {
        let mut missed = true;
        while std::mem::take(&mut missed) {
            for (retired, requested) in self.dropped.others.take() {
                let Some((later, waits_for)) = self.retire(retired) else { continue };
                // Queue it before its report is requested: the report may arrive immediately, and then empties the
                // queue. Each report of any stream does so. Request it only once, or each report would cause as many
                // further ones as resources wait.
                self.dropped.others.push((later, waits_for));
                let Some(ticket) = waits_for else { continue };
                // A report that arrived while the resource was in no queue has missed it, so empty the queue once more.
                if self.streams.is_complete(ticket) {
                    missed = true;
                } else if requested != Some(ticket) && self.try_want(ticket).is_err() {
                    // The next call requests it again.
                    self.dropped.others.with_all(|all| {
                        let same = all.iter_mut().filter(|(_, requested)| *requested == waits_for);
                        same.for_each(|(_, requested)| *requested = None);
                    });
                }
            }
        }
    }

    /// Gives a resource back to the device. If work still uses it, returns it, with the ticket whose report the caller
    /// requests.
    fn retire(&self, retired: Retired) -> Option<(Retired, Option<Ticket>)> {
        match retired {
            // SAFETY: all its launches are complete, and no later submission launches it (see `retire_graph`).
            Retired::Graph(id) => unsafe { self.send(Control::DropGraph { id }) },
            Retired::Pool(id) => {
                // SAFETY: the last handle of the pool was dropped, so no later allocation uses it.
                unsafe { self.send(Control::DropPool { id }) };
                self.pools.remove();
            }
            Retired::Launch(ticket) => {
                let timeline = self.streams.find(ticket.stream);
                if timeline.is_some_and(|timeline| !timeline.release_complete(ticket.number)) {
                    self.want(ticket);
                }
            }
            Retired::Module(id, mut uses) => {
                if let Some(ticket) = self.any_in_use(&mut uses) {
                    return Some((Retired::Module(id, uses), Some(ticket)));
                }
                // SAFETY: the last handle was dropped, and every launch of the module's functions is complete.
                unsafe { self.send(Control::UnloadModule { id }) };
            }
            Retired::Foreign(id, mut uses, owner) => {
                if let Some(ticket) = self.any_in_use(&mut uses) {
                    return Some((Retired::Foreign(id, uses, owner), Some(ticket)));
                }
                if let Some(foreign) = self.backend.foreign() {
                    // SAFETY: the last handle was dropped, and every submission that names the memory is complete.
                    // An error can only mean that the memory is forgotten already.
                    _ = unsafe { foreign.forget_memory(id) };
                }
                // A user's code: it may block or panic, so it runs on the helper thread.
                _ = self.helper.run(move || drop(owner));
            }
            Retired::Stream(id) => {
                if let Some(timeline) = self.streams.find(id).filter(|timeline| timeline.is_busy())
                {
                    let ticket = Ticket { stream: id, number: timeline.published() };
                    return Some((Retired::Stream(id), Some(ticket)));
                }
                // Creating a stream may block, and this may be the thread that delivers notices. So it does not wait.
                let changing = self.changing_streams.try_lock();
                if changing.is_none() || !self.streams.remove_unused(id) {
                    return Some((Retired::Stream(id), None));
                }
                // SAFETY: only the table held the stream, and all its work is complete.
                unsafe { self.send(Control::RetireStream { id }) };
            }
        }
        None
    }

    /// Takes out the foreign memory that was dropped, with the tickets of its last uses. Empties the queue: the device
    /// is closed, and its end frees the rest.
    pub(super) fn take_foreign(&self) -> Vec<(Ticket, Box<dyn Any + Send + Sync>)> {
        let mut taken = Vec::<(Ticket, Box<dyn Any + Send + Sync>)>::new();
        for (retired, _) in self.dropped.others.take() {
            if let Retired::Foreign(_, uses, owner) = retired {
                let owner = Arc::new(owner);
                taken.extend(uses.into_iter().map(|used| (used, Box::new(owner.clone()) as _)));
            }
        }
        taken
    }

    /// Returns a ticket that is not complete. Removes complete ones on the way, so each is looked at once.
    fn any_in_use(&self, uses: &mut Vec<Ticket>) -> Option<Ticket> {
        while uses.pop_if(|ticket| self.streams.is_complete(*ticket)).is_some() {}
        uses.last().copied()
    }

    /// Frees on the stream of a last use that is not complete, after all other uses.
    fn free(&self, freed: &Freed) {
        let mut after: Vec<_> = freed.last_uses.to_vec();
        after.retain(|ticket| !self.streams.is_complete(*ticket));
        // `home` keeps the stream from being retired meanwhile.
        let home = after.pop().and_then(|ticket| self.streams.find(ticket.stream));
        let stream = home.as_ref().map_or(self.housekeeping.id, |home| home.id);
        after.retain(|ticket| ticket.stream != stream);
        // SAFETY: the last handle was dropped. Each use is complete, on `stream`, or in `after`. A stream that is not
        // in the table was retired, so its work is complete.
        unsafe { self.send(Control::Free { id: freed.id, stream, after }) };
        match &freed.origin {
            Origin::Default => self.refund(None, freed.bytes),
            Origin::Pool(pool) => self.refund(Some(pool), freed.bytes),
            Origin::NoPool => self.charge.refund_elsewhere(freed.bytes),
        }
    }

    /// Sends a control and ignores its error, because an error can only mean that the device is lost.
    ///
    /// # Safety
    /// No later submission uses the memory, stream, graph or module that `control` frees, retires, drops or unloads.
    unsafe fn send(&self, control: Control) {
        // SAFETY: no later submission uses anything that the control frees, retires, drops or unloads.
        let _ = unsafe { self.backend.control(control) };
    }
}

impl DropsPools for DeviceCore {
    fn retire_pool(&self, id: PoolId) {
        self.retire_later(Retired::Pool(id));
    }
}

/// A list that many threads push to, and from which one call takes all items.
pub(crate) struct Inbox<T> {
    items: Mutex<Vec<T>>,
    /// The number of items, readable without the lock. Stored under the lock.
    waiting: AtomicUsize,
}

impl<T> Inbox<T> {
    pub(crate) fn push(&self, item: T) {
        self.change(|items| items.push(item));
    }

    /// Calls `change` with the items, under the lock.
    fn change(&self, change: impl FnOnce(&mut Vec<T>)) {
        let mut items = self.items.lock();
        change(&mut items);
        self.waiting.store(items.len(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Takes the newest item for which `fits` returns true. Looks at the 16 newest items only, to bound the time under
    /// the lock.
    pub(crate) fn take_last(&self, fits: impl FnMut(&T) -> bool) -> Option<T> {
        const SEARCHED: usize = 16;
        if self.is_empty() {
            return None;
        }
        let mut items = self.items.lock();
        let found = items.iter().rev().take(SEARCHED).position(fits)?;
        let at = items.len() - 1 - found;
        let item = items.remove(at);
        self.waiting.store(items.len(), Ordering::Release);
        Some(item)
    }

    /// Calls `look` with all items, under the lock.
    pub(crate) fn with_all<R>(&self, look: impl FnOnce(&mut [T]) -> R) -> R {
        look(&mut self.items.lock())
    }

    pub(crate) fn take(&self) -> Vec<T> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut items = self.items.lock();
        self.waiting.store(0, Ordering::Release);
        std::mem::take(&mut items)
    }
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { items: Mutex::default(), waiting: AtomicUsize::new(0) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn cancelled_ranges_are_merged_and_bounded() {
        let mut ranges = Vec::new();
        let mut add = |stream, first, last, downloads| {
            Cancelled { stream: StreamId(stream), first, last, downloads }.add_to(&mut ranges);
            ranges.iter().map(|range| (range.first, range.last)).collect::<Vec<_>>()
        };
        assert_eq!(add(1, 1, 3, false), [(1, 3)]);
        assert_eq!(add(1, 4, 5, false), [(1, 5)]);
        assert_eq!(add(1, 6, 6, true), [(1, 5), (6, 6)]);
        assert_eq!(add(2, 7, 7, true), [(1, 5), (6, 6), (7, 7)]);
        // Submission 8 is between them.
        assert_eq!(add(2, 9, 9, true), [(1, 5), (6, 6), (7, 7), (9, 9)]);
        for number in 0..2 * MAX_CANCELLED as u64 {
            add(3, 2 * number + 1, 2 * number + 1, false);
        }
        assert_eq!(ranges.len(), MAX_CANCELLED);
    }
}
