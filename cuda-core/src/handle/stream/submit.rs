//! Submission: sends every [`Work`] to the backend.
//!
//! Under the stream's order lock, a submission takes the next number, claims the histories of its operands, names the
//! tickets that it comes after, retains what it needs, and is handed to the backend. A refused one leaves nothing
//! behind. Work of a recording goes to the recorder instead. Submissions that use marked memory take turns.
//!
//! # Turns
//! Submissions that use recorded memory, or a variable of a module, make their claims one after the other.
//!
//! A history may hold the claim of a submission that is not published yet, and no submission can name an unpublished
//! ticket. Among live handles such a claim only reads, because a writer holds its memory exclusively while it submits.
//! A replay holds no such right: it writes memory without holding its handles. Nor does a launch that writes a
//! variable. Therefore:
//! - An allocation is *marked* when a recording uses it, while the recorded operation holds the handle. A mark is never
//!   removed. A variable is marked from the start.
//! - A submission that uses a marked allocation holds that allocation's turn from before its claims until it is
//!   published or refused. A replay holds the turns of everything that it uses until its last node is published.
//! - Turns are taken with the order lock of the stream held, in the order of the allocations' ids. So turns and
//!   order locks cannot deadlock.
//!
//! A submission that found an allocation unmarked may meet a replay on it. Both then only read. If one of them wrote,
//! its handle was exclusive: the submission ended before the recording used the memory, or began after that and found
//! the mark.
//!
//! # Events
//! With the feature `spans`, each submission is an event of `tracing`. Without it, the functions for events are empty.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    handle::stream::{
        allocation::{Allocation, Operand},
        recorder::{Recorder, UploadSource},
        stream::Stream,
    },
    order::{
        Retain,
        history::Displaced,
        timeline::{Until, Watermarks},
    },
    protocol::{
        Access, Error, HostBlock, LaunchConfig, MemoryConflict, Result, Submission, Ticket, Work,
    },
    sync::MutexGuard,
};

/// Tickets that a submission comes after.
pub(super) type After = SmallVec<[Ticket; 4]>;

/// A resource that a submission needs.
pub(crate) struct Keep {
    pub(crate) until: Until,
    pub(crate) resource: Arc<dyn Retain>,
}

/// The parts of a submission besides its work and its operands.
#[derive(Default)]
pub(crate) struct Attached<'a> {
    /// Tickets that it comes after, beside those of its operands.
    pub(crate) after: &'a [Ticket],
    pub(crate) keep: Option<Keep>,
    /// The host memory of a copy.
    pub(crate) host: Option<&'a Arc<HostBlock>>,
}

impl Stream {
    /// Takes the order lock.
    #[inline]
    pub(crate) fn ordered(&self) -> Ordered<'_> {
        Ordered { stream: self, turns: Turns::default(), marks: self.timeline().order.lock() }
    }

    /// Submits work, after everything that has to come before it.
    ///
    /// # Safety
    /// - `operands` are the device memory that `work` uses, with its accesses, and the caller may make these accesses.
    /// - `attached` keeps the host memory or the memory of another device that `work` uses, and no other thread
    ///   accesses its bytes meanwhile, unless both only read.
    /// - A launched kernel stays inside its operands.
    /// - A module or graph that `work` names is not unloaded or dropped before it is complete.
    #[inline(always)] // so that each caller compiles only the parts that it uses
    pub(crate) unsafe fn submit(
        &self,
        work: &Work<'_>,
        operands: &[Operand<'_>],
        attached: Attached<'_>,
    ) -> Result<Ticket> {
        let device = self.device();
        device.core().reclaim_memory();
        let mut takes_turns = false;
        for operand in operands {
            device.check_same("a buffer", operand.allocation.device())?;
            takes_turns |= operand.allocation.takes_turns();
        }
        if self.is_recording() {
            return append_to_recording(self, work, operands, attached);
        }
        if takes_turns && operands.iter().any(|operand| operand.allocation.is_planned()) {
            return Err(planned_memory());
        }
        let Attached { after, keep, host } = attached;
        let mut ordered = self.ordered();
        if takes_turns {
            ordered.turns.take(operands);
        }
        // SAFETY: the operands are checked, and `ordered` holds the turns of the marked ones. `attached` keeps the host
        // memory and the other resources of `work`. The caller may make the accesses of the operands.
        let ticket = unsafe { ordered.submit(work, operands, after, keep, blocks(host)) }?;
        drop(ordered);
        trace_submitted(ticket, work);
        Ok(ticket)
    }
}

/// Appends work to the recording of a stream.
#[cold]
fn append_to_recording(
    stream: &Stream,
    work: &Work<'_>,
    operands: &[Operand<'_>],
    attached: Attached<'_>,
) -> Result<Ticket> {
    let planned = operands.iter().any(|operand| operand.allocation.is_planned());
    stream.ordered().record(|recorder| {
        if planned && !recorder.is_plan() {
            return Err(planned_memory());
        }
        if !attached.after.is_empty() {
            return recorder.join(stream.id(), attached.after);
        }
        let upload = attached.keep.zip(attached.host.cloned());
        let source = upload.map(|(keep, block)| UploadSource::new(keep.resource, block));
        recorder.append(stream.device(), stream.id(), work, operands, source)
    })
}

/// Publishes a submission that the backend has taken. Called with the order lock held.
#[inline]
pub(super) fn publish(stream: &Stream, ticket: Ticket) {
    stream.timeline().publish(ticket.number);
    stream.sent.count(ticket.number);
    if stream.sent.is_awaited() {
        stream.timeline().set_awaited(ticket.number);
    }
}

/// A stream whose order lock this thread holds: its submissions come one after the other.
pub(crate) struct Ordered<'a> {
    stream: &'a Stream,
    /// The turns of marked allocations. A field before the lock, so they are released before it.
    pub(crate) turns: Turns<'a>,
    marks: MutexGuard<'a, Watermarks>,
}

impl<'a> Ordered<'a> {
    /// The stream.
    pub(super) fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// Submits work to the backend. The operands are checked, and this holds the turns of those that are marked.
    ///
    /// # Safety
    /// The requirements of [`Stream::submit`]. The owner of a graph's resources may keep them instead of `keep`.
    #[inline]
    pub(crate) unsafe fn submit(
        &mut self,
        work: &Work<'_>,
        operands: &[Operand<'_>],
        joined: &[Ticket],
        keep: Option<Keep>,
        blocks: &[Arc<HostBlock>],
    ) -> Result<Ticket> {
        let stream = self.stream;
        self.send(Claims::of, operands, joined, keep, |ticket, after| {
            let backend = &stream.device().core().backend;
            let submission = Submission { ticket, after, work };
            // SAFETY:
            // - The retention of this stream holds `keep` until an upload is accepted, and until other work is
            //   complete.
            // - `after` and the stream order the uses of the operands.
            // - The caller may make the accesses of `operands`, and a launched kernel stays inside them.
            // - No module or graph that `work` names is unloaded or dropped before it is complete.
            unsafe {
                if stream.sent.note_deferrable() {
                    backend.submit_deferrable(&submission, blocks)
                } else {
                    backend.submit(&submission, blocks)
                }
            }
        })
    }

    /// Takes the next ticket, claims the operands with `claim`, and sends the submission with the tickets that it comes
    /// after. The operands are checked, and this holds the turns of those that are marked. If `send` returns an error,
    /// the submission was refused: it enqueued nothing, and does not count.
    #[inline]
    pub(super) fn send(
        &mut self,
        claim: fn(&[Operand<'_>], Ticket) -> Claims,
        operands: &[Operand<'_>],
        joined: &[Ticket],
        keep: Option<Keep>,
        send: impl FnOnce(Ticket, &[Ticket]) -> Result<()>,
    ) -> Result<Ticket> {
        let (stream, timeline) = (self.stream, self.stream.timeline());
        let ticket = self.reserve();
        let claims = claim(operands, ticket);
        let mut after = After::new();
        if !joined.is_empty() || !claims.is_empty() {
            self.collect_dependencies(joined, &claims, operands, &mut after);
        }
        // Retain before submitting, because completion on another thread releases the resource.
        let keeps = keep.is_some();
        let ask = keep
            .is_some_and(|keep| timeline.retention.keep(ticket.number, keep.until, keep.resource));
        if let Err(refused) = send(ticket, &after) {
            if keeps {
                timeline.retention.forget(ticket.number);
            }
            claims.give_back(operands, ticket);
            timeline.give_back(ticket);
            return Err(refused);
        }
        if !after.is_empty() {
            self.note_edges(ticket, &after);
        }
        publish(self.stream, ticket);
        if ask || timeline.take_due_report(ticket.number) {
            stream.device().core().report(ticket);
        }
        Ok(ticket)
    }

    /// Submits a control that takes a ticket.
    pub(super) fn control(&self, send: impl FnOnce(Ticket) -> Result<()>) -> Result<Ticket> {
        let ticket = self.reserve();
        send(ticket).inspect_err(|_| self.stream.timeline().give_back(ticket))?;
        publish(self.stream, ticket);
        Ok(ticket)
    }

    /// Begins a submission: takes the next number. If a task awaits the last submission of another handle, requests the
    /// report of that one before this one follows it.
    #[inline]
    fn reserve(&self) -> Ticket {
        let (stream, timeline) = (self.stream, self.stream.timeline());
        let ticket = timeline.reserve();
        if !stream.sent.continues_with(ticket.number)
            && let Some(number) = timeline.take_awaited()
        {
            stream.device().core().want(Ticket { number, ..ticket });
        }
        ticket
    }

    /// Appends a node to the recording of this stream, and counts it. Nothing can wait for it: its outcome is
    /// [`Error::NeedsHostData`] at once.
    ///
    /// # Errors
    /// The error of `append`, or [`Error::AlreadyEnded`] if this is not a stream of a recording.
    pub(crate) fn record(&self, append: impl FnOnce(&Recorder) -> Result<u64>) -> Result<Ticket> {
        let recorder = self.stream.recorder().ok_or(Error::AlreadyEnded)?;
        let number = append(recorder)?;
        let progress = &self.stream.timeline().progress;
        progress.fail(number, Error::needs_host_data("a wait for recorded work"));
        drop(progress.advance(number));
        let ticket = Ticket { stream: self.stream.id(), number };
        publish(self.stream, ticket);
        Ok(ticket)
    }

    /// Adds to `after` the tickets that this submission has to name.
    #[cold]
    fn collect_dependencies(
        &self,
        joined: &[Ticket],
        claims: &Claims,
        operands: &[Operand<'_>],
        after: &mut After,
    ) {
        for ticket in joined {
            self.add_dependency(*ticket, after);
        }
        for (index, (ticket, _)) in claims.displaced.iter().enumerate() {
            if !self.add_dependency(*ticket, after) {
                // Another thread is submitting the displaced access now. Both are reads, because a writer has exclusive
                // access or the turn, and two reads need no order. A later writer comes after the restored read.
                claims.restore(index, operands);
            }
        }
    }

    /// Adds `ticket` to `after`, unless the submission is already ordered after it. Returns false if `ticket` is not
    /// published yet.
    fn add_dependency(&self, ticket: Ticket, after: &mut After) -> bool {
        if ticket.stream == self.stream.id() || self.marks.covers(ticket) {
            return true;
        }
        let Some(producer) = self.stream.device().core().streams.find(ticket.stream) else {
            return true;
        };
        if producer.progress.completed() >= ticket.number {
            return true;
        }
        if producer.published() < ticket.number {
            return false;
        }
        match after.iter_mut().find(|named| named.stream == ticket.stream) {
            Some(named) => named.number = named.number.max(ticket.number),
            None => after.push(ticket),
        }
        true
    }

    #[cold]
    fn note_edges(&mut self, own: Ticket, after: &After) {
        for ticket in after {
            self.marks.raise(*ticket);
            if let Some(producer) = self.stream.device().core().streams.find(ticket.stream) {
                self.stream.timeline().inferred.note(own.number, &producer, ticket.number);
            }
        }
    }
}

/// The blocks of a submission that names one at most.
#[inline]
fn blocks(host: Option<&Arc<HostBlock>>) -> &[Arc<HostBlock>] {
    host.map_or(&[], std::slice::from_ref)
}

#[cold]
pub(super) fn planned_memory() -> Error {
    Error::memory("work outside of a plan", MemoryConflict::Planned)
}

/// The accesses that a submission has displaced from the histories of its operands.
#[derive(Default)]
pub(super) struct Claims {
    displaced: Displaced,
    /// For every displaced access, the index of the operand from whose history it comes.
    owners: SmallVec<[u32; 4]>,
}

impl Claims {
    /// Claims the operands of a submission.
    #[inline]
    pub(super) fn of(operands: &[Operand<'_>], ticket: Ticket) -> Self {
        let mut claims = Self::default();
        for (owner, operand) in operands.iter().enumerate() {
            claims.claim(owner, operand, ticket, operand.allocation.takes_turns());
        }
        claims
    }

    /// Claims the operands of a foreign call. It has only shared borrows of them, so other threads may claim reads of
    /// memory that it writes at the same time.
    pub(super) fn of_foreign(operands: &[Operand<'_>], ticket: Ticket) -> Self {
        let mut claims = Self::default();
        for (owner, operand) in operands.iter().enumerate() {
            claims.claim(owner, operand, ticket, true);
        }
        claims
    }

    /// Whether no other access was displaced.
    #[inline]
    fn is_empty(&self) -> bool {
        self.displaced.is_empty()
    }

    /// Claims an operand. A part without bytes claims nothing: its position may lie in a piece that another thread
    /// uses. An allocation without bytes is read, so that its free comes after the submission. Other threads may use it
    /// too.
    #[inline]
    fn claim(&mut self, owner: usize, operand: &Operand<'_>, ticket: Ticket, locked: bool) {
        let (mut whole, mut access) = (operand.is_whole(), operand.access);
        if operand.range.is_empty() {
            if operand.allocation.bytes() > 0 {
                return;
            }
            (whole, access) = (false, Access::Read);
        }
        let (accesses, displaced) = (&operand.allocation.accesses, &mut self.displaced);
        if locked {
            accesses.claim_locked(ticket, access, &operand.range, whole, displaced);
        } else {
            accesses.claim(ticket, access, &operand.range, whole, displaced);
        }
        if self.owners.len() < self.displaced.len() {
            self.owners.resize(self.displaced.len(), owner as u32);
        }
    }

    /// Restores one displaced access in its history.
    #[cold]
    fn restore(&self, index: usize, operands: &[Operand<'_>]) {
        let owner = self.owners.get(index);
        if let Some(operand) = owner.and_then(|owner| operands.get(*owner as usize)) {
            let displaced = std::slice::from_ref(&self.displaced[index]);
            operand.allocation.accesses.restore(&operand.range, displaced);
        }
    }

    /// Undoes the claims of a refused submission, and restores the accesses that they displaced.
    #[cold]
    fn give_back(&self, operands: &[Operand<'_>], ticket: Ticket) {
        for operand in operands {
            operand.allocation.accesses.retract(ticket);
        }
        (0..self.displaced.len()).for_each(|index| self.restore(index, operands));
    }
}

/// The turns of some allocations, until they are dropped. `None` if there are none, so that a drop without turns is one
/// test.
#[derive(Default)]
pub(crate) struct Turns<'a>(Option<SmallVec<[MutexGuard<'a, ()>; 4]>>);

impl<'a> Turns<'a> {
    /// Takes the turns of those operands whose allocation is marked. Called with the order lock held, on a value that
    /// holds no turns yet.
    pub(super) fn take(&mut self, operands: &[Operand<'a>]) {
        let marked = operands.iter().map(|operand| operand.allocation);
        let mut marked: SmallVec<[&Allocation; 4]> =
            marked.filter(|allocation| allocation.takes_turns()).collect();
        marked.sort_unstable_by_key(|allocation| allocation.id().0);
        marked.dedup_by_key(|allocation| allocation.id());
        self.take_sorted(marked);
    }

    /// Takes the turns of different allocations, which are sorted by their ids. Called with the order lock held, on a
    /// value that holds no turns yet. Extends in place, because a constructor would move the guards.
    #[inline]
    pub(crate) fn take_sorted(&mut self, allocations: impl IntoIterator<Item = &'a Allocation>) {
        let turns = self.0.get_or_insert_default();
        turns.extend(allocations.into_iter().map(|allocation| allocation.turn.lock()));
    }
}

#[cfg(feature = "spans")]
const TRACE_TARGET: &str = "cuda_async::submission";

/// Reports a submission that the device has taken, except a launch: see [`trace_launched`]. Called without locks,
/// because a subscriber is a user's code.
#[inline(always)]
pub(crate) fn trace_submitted(ticket: Ticket, work: &Work<'_>) {
    #[cfg(feature = "spans")]
    events::submitted(ticket, work);
    #[cfg(not(feature = "spans"))]
    let _ = (ticket, work);
}

/// Reports a launch that the device has taken. Called without locks.
#[inline(always)]
pub(crate) fn trace_launched(ticket: Ticket, kernel: &str, config: &LaunchConfig) {
    #[cfg(feature = "spans")]
    events::launched(ticket, kernel, config);
    #[cfg(not(feature = "spans"))]
    let _ = (ticket, kernel, config);
}

/// Reports a replay of a recording, with its last ticket. Called without locks.
#[inline(always)]
pub(crate) fn trace_replayed(last: Ticket, nodes: usize) {
    #[cfg(feature = "spans")]
    tracing::trace!(target: TRACE_TARGET, stream = last.stream.0, number = last.number, nodes, "replay");
    #[cfg(not(feature = "spans"))]
    let _ = (last, nodes);
}

#[cfg(feature = "spans")]
mod events {
    use tracing::trace;

    use super::TRACE_TARGET;
    use crate::protocol::{LaunchConfig, Ticket, Work};

    #[inline]
    pub(super) fn submitted(ticket: Ticket, work: &Work<'_>) {
        let (stream, number) = (ticket.stream.0, ticket.number);
        match work {
            Work::Join => trace!(target: TRACE_TARGET, stream, number, "join"),
            Work::Upload { bytes, .. } => {
                trace!(target: TRACE_TARGET, stream, number, bytes, "upload")
            }
            Work::Download { bytes, .. } => {
                trace!(target: TRACE_TARGET, stream, number, bytes, "download");
            }
            Work::Copy { bytes, .. } => trace!(target: TRACE_TARGET, stream, number, bytes, "copy"),
            Work::Fill { count, pattern, .. } => {
                let bytes = count.saturating_mul(pattern.bytes());
                trace!(target: TRACE_TARGET, stream, number, bytes, "fill");
            }
            Work::Send { bytes, .. } => {
                trace!(target: TRACE_TARGET, stream, number, bytes, "copy to another device");
            }
            Work::Timestamp { .. } => trace!(target: TRACE_TARGET, stream, number, "timestamp"),
            // `trace_launched` and `trace_replayed` report these.
            Work::Launch(_) | Work::Graph(_) | Work::Repeat(_) | Work::Foreign(_) => {}
        }
    }

    #[inline]
    pub(super) fn launched(ticket: Ticket, kernel: &str, config: &LaunchConfig) {
        let LaunchConfig { grid, block, shared_bytes, .. } = config;
        trace!(
            target: TRACE_TARGET,
            stream = ticket.stream.0,
            number = ticket.number,
            kernel,
            ?grid,
            ?block,
            shared_bytes,
            "launch"
        );
    }
}
