//! Submission: sends every [`Work`] to the backend.
//!
//! Under the stream's order lock, a submission takes the next number, claims the histories of its operands, names the
//! tickets that it comes after, retains what it needs, and is handed to the backend. A refused one leaves nothing behind.
//! Work of a recording goes to the recorder instead. Submissions that use marked memory take turns (see `turns`).

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    allocation::Operand,
    recorder::{LoopResources, Recorder, UploadSlot, UploadSource},
    stream::Stream,
    trace,
    turns::Turns,
};
use crate::{
    order::{Retain, history::Displaced, retention::Until, timeline::Watermarks},
    protocol::{Access, Error, HostBlock, Repeat, Result, Submission, Ticket, Work},
};

/// Tickets that a submission comes after.
pub(super) type After = SmallVec<[Ticket; 4]>;

/// A resource that a submission needs.
pub(crate) struct Keep {
    pub(crate) until: Until,
    pub(crate) resource: Arc<dyn Retain>,
}

impl Stream {
    /// Submits work, after everything that has to come before it.
    ///
    /// # Safety
    /// - `operands` are the device memory that `work` uses, with its accesses, and the caller may make these accesses.
    /// - `keep` owns the host memory or the memory of another device that `work` uses, and no other thread accesses its
    ///   bytes meanwhile, unless both only read.
    /// - A launched kernel stays inside its operands.
    /// - A module or graph that `work` names is not unloaded or dropped before it is complete.
    pub(crate) unsafe fn submit(
        &self,
        work: &Work<'_>,
        operands: &[Operand<'_>],
        keep: Option<Keep>,
        host: Option<&Arc<HostBlock>>,
    ) -> Result<Ticket> {
        // SAFETY: the caller's promise.
        unsafe { self.submit_after(work, operands, &[], keep, host) }
    }

    /// As [`submit`](Self::submit), for a launch, which retains nothing.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    pub(crate) unsafe fn submit_launch(
        &self,
        work: &Work<'_>,
        operands: &[Operand<'_>],
    ) -> Result<Ticket> {
        // SAFETY: the caller's promise.
        unsafe { self.submit_after(work, operands, &[], None, None) }
    }

    /// As [`submit`](Self::submit), also after the tickets in `joined`.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    #[inline(always)] // so that each caller compiles only the parts that it uses
    pub(super) unsafe fn submit_after(
        &self,
        work: &Work<'_>,
        operands: &[Operand<'_>],
        joined: &[Ticket],
        keep: Option<Keep>,
        host: Option<&Arc<HostBlock>>,
    ) -> Result<Ticket> {
        let device = self.device();
        device.core().reclaim_memory();
        let mut takes_turns = false;
        for operand in operands {
            device.check_same("a buffer", operand.allocation.device())?;
            takes_turns |= operand.allocation.takes_turns();
        }
        if let Some(recorder) = self.recorder() {
            return self.append_to_recording(
                recorder,
                work,
                operands,
                joined,
                keep.zip(host.cloned()),
            );
        }
        if takes_turns {
            // SAFETY: the caller's promise.
            return unsafe { self.submit_in_turn(work, operands, joined, keep, host) };
        }
        let mut marks = self.timeline().order.lock();
        // SAFETY: the caller's promise.
        let submitted =
            unsafe { self.submit_ordered(&mut marks, work, operands, joined, keep, blocks(host)) };
        drop(marks);
        trace::submitted(&submitted, work);
        submitted
    }

    /// Submits work on a marked allocation, which takes turns.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    #[cold]
    unsafe fn submit_in_turn(
        &self,
        work: &Work<'_>,
        operands: &[Operand<'_>],
        joined: &[Ticket],
        keep: Option<Keep>,
        host: Option<&Arc<HostBlock>>,
    ) -> Result<Ticket> {
        if operands.iter().any(|it| it.allocation.is_planned()) {
            return Err(planned_memory());
        }
        let mut marks = self.timeline().order.lock();
        let turns = Turns::of_operands(operands);
        // SAFETY: the caller's promise.
        let submitted =
            unsafe { self.submit_ordered(&mut marks, work, operands, joined, keep, blocks(host)) };
        // The turns are released before the order lock.
        drop(turns);
        drop(marks);
        trace::submitted(&submitted, work);
        submitted
    }

    /// Appends work to the recording of this stream. `source` is that of an upload.
    #[cold]
    fn append_to_recording(
        &self,
        recorder: &Arc<Recorder>,
        work: &Work<'_>,
        operands: &[Operand<'_>],
        joined: &[Ticket],
        source: Option<(Keep, Arc<HostBlock>)>,
    ) -> Result<Ticket> {
        if operands.iter().any(|it| it.allocation.is_planned()) && !recorder.is_plan() {
            return Err(planned_memory());
        }
        let _order = self.timeline().order.lock();
        let number = if joined.is_empty() {
            let source = source.map(|(keep, block)| UploadSource::new(keep.resource, block));
            recorder.append(self.device(), self.id(), work, operands, source)?
        } else {
            recorder.join(self.id(), joined)?
        };
        Ok(self.publish_recorded(number))
    }

    /// Records an upload whose bytes may change between replays.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this is not a stream of a recording, or as for [`submit`](Self::submit).
    pub(crate) fn record_upload(
        &self,
        work: &Work<'_>,
        operand: Operand<'_>,
        slot: Arc<dyn UploadSlot>,
    ) -> Result<Ticket> {
        let Some(recorder) = self.recorder() else { return Err(Error::AlreadyEnded) };
        self.device().check_same("a buffer", operand.allocation.device())?;
        let _order = self.timeline().order.lock();
        let (_, source) = slot.current();
        let source = UploadSource { slot: Some(slot), ..source };
        let number = recorder.append(self.device(), self.id(), work, &[operand], Some(source))?;
        Ok(self.publish_recorded(number))
    }

    /// Records a loop, as [`record_upload`](Self::record_upload).
    pub(crate) fn record_loop(
        &self,
        repeat: Repeat,
        operands: &[Operand<'_>],
        kept: LoopResources,
    ) -> Result<Ticket> {
        let Some(recorder) = self.recorder() else { return Err(Error::AlreadyEnded) };
        let _order = self.timeline().order.lock();
        let number = recorder.append_loop(self.device(), self.id(), repeat, operands, kept)?;
        Ok(self.publish_recorded(number))
    }

    /// Submits work. Called with the order lock held, with checked operands, and with the turns of marked
    /// allocations.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit). The owner of a graph's resources may keep them instead of `keep`.
    #[inline]
    pub(crate) unsafe fn submit_ordered(
        &self,
        marks: &mut Watermarks,
        work: &Work<'_>,
        operands: &[Operand<'_>],
        joined: &[Ticket],
        keep: Option<Keep>,
        blocks: &[Arc<HostBlock>],
    ) -> Result<Ticket> {
        let timeline = self.timeline();
        let core = self.device().core();
        let ticket = self.reserve();
        let claims = Claims::of(operands, ticket);
        let mut after = After::new();
        if !joined.is_empty() || !claims.is_empty() {
            self.collect_dependencies(marks, joined, &claims, operands, &mut after);
        }
        // Retain before submitting, because completion on another thread releases the resource.
        let keeps = keep.is_some();
        let ask =
            keep.is_some_and(|it| timeline.retention.keep(ticket.number, it.until, it.resource));
        let submission = Submission { ticket, after: &after, work };
        // SAFETY:
        // - The retention of this stream holds `keep` until an upload is accepted, and until other work is complete.
        // - `after` and the stream order the uses of the operands.
        // - The caller promises the rest.
        let submitted = unsafe {
            if self.sent.note_deferrable() {
                core.backend.submit_deferrable(&submission, blocks)
            } else {
                core.backend.submit(&submission, blocks)
            }
        };
        if let Err(error) = submitted {
            if keeps {
                timeline.retention.forget(ticket.number);
            }
            claims.give_back(operands, ticket);
            timeline.give_back(ticket);
            return Err(error);
        }
        if !after.is_empty() {
            self.note_edges(marks, ticket, &after);
        }
        self.publish(ticket);
        if ask || timeline.take_due_report(ticket.number) {
            core.report(ticket);
        }
        Ok(ticket)
    }

    /// Submits a control that takes a ticket.
    pub(super) fn submit_control(&self, send: impl FnOnce(Ticket) -> Result<()>) -> Result<Ticket> {
        let _order = self.timeline().order.lock();
        let ticket = self.reserve();
        send(ticket).inspect_err(|_| self.timeline().give_back(ticket))?;
        self.publish(ticket);
        Ok(ticket)
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

    /// Publishes a submission that the backend has taken. Called with the order lock held.
    #[inline]
    pub(super) fn publish(&self, ticket: Ticket) {
        self.timeline().publish(ticket.number);
        self.sent.count(ticket.number);
        if self.sent.is_awaited() {
            self.timeline().set_awaited(ticket.number);
        }
    }

    pub(super) fn is_plan(&self) -> bool {
        self.recorder().is_some_and(|it| it.is_plan())
    }

    /// Counts a node of a recording. Nothing can wait for it: its outcome is [`Error::NeedsHostData`] at once. Called
    /// with the order lock held.
    pub(super) fn publish_recorded(&self, number: u64) -> Ticket {
        let ticket = Ticket { stream: self.id(), number };
        self.progress().fail(number, Error::needs_host_data("a wait for recorded work"));
        drop(self.progress().advance(number));
        self.publish(ticket);
        ticket
    }

    /// Adds to `after` the tickets that this submission has to name.
    #[cold]
    pub(super) fn collect_dependencies(
        &self,
        marks: &mut Watermarks,
        joined: &[Ticket],
        claims: &Claims,
        operands: &[Operand<'_>],
        after: &mut After,
    ) {
        for ticket in joined {
            self.add_dependency(marks, *ticket, after);
        }
        for (index, (ticket, _)) in claims.displaced.iter().enumerate() {
            if !self.add_dependency(marks, *ticket, after) {
                // Another thread is submitting the displaced access now. Both are reads, because a writer has exclusive access
                // or the turn, and two reads need no order. A later writer comes after the restored read.
                claims.restore(index, operands);
            }
        }
    }

    /// Adds `ticket` to `after`, unless the submission is already ordered after it. Returns false if `ticket` is not
    /// published yet.
    fn add_dependency(&self, marks: &Watermarks, ticket: Ticket, after: &mut After) -> bool {
        if ticket.stream == self.id() || marks.covers(ticket) {
            return true;
        }
        let Some(producer) = self.device().core().streams.find(ticket.stream) else {
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
    pub(super) fn note_edges(&self, marks: &mut Watermarks, own: Ticket, after: &After) {
        for ticket in after {
            marks.raise(*ticket);
            if let Some(producer) = self.device().core().streams.find(ticket.stream) {
                self.timeline().inferred.note(own.number, &producer, ticket.number);
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
    let detail =
        "it was allocated by a plan and does not exist on the device; allocate outside of the plan";
    Error::Misuse { what: "a buffer".into(), detail: detail.into() }
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

    /// Claims the operands of a foreign call. It has only shared borrows of them, so other threads may claim reads of memory
    /// that it writes at the same time.
    pub(super) fn of_foreign(operands: &[Operand<'_>], ticket: Ticket) -> Self {
        let mut claims = Self::default();
        for (owner, operand) in operands.iter().enumerate() {
            claims.claim(owner, operand, ticket, true);
        }
        claims
    }

    /// Whether no other access was displaced.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.displaced.is_empty()
    }

    /// Claims an operand. A part without bytes claims nothing: its position may lie in a piece that another thread uses. An
    /// allocation without bytes is read, so that its free comes after the submission. Other threads may use it too.
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
    pub(super) fn give_back(&self, operands: &[Operand<'_>], ticket: Ticket) {
        for operand in operands {
            operand.allocation.accesses.retract(ticket);
        }
        (0..self.displaced.len()).for_each(|index| self.restore(index, operands));
    }
}
