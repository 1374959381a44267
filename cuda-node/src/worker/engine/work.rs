//! Passes work, allocations and frees to the backend.

use cuda_core::{
    Error, Ticket,
    order::uses_of,
    protocol::{AllocId, Control, PoolId, StreamId, Submission, Use},
};

use super::{
    Engine,
    state::{BackendStep, State},
};
use crate::worker::{numbers::Stage, quota::Charge, reports::StepMemory};

impl Engine {
    /// Submits a step, or a part of it. Returns whether the backend took it.
    pub(super) fn run(&self, state: &mut State, step: BackendStep<'_>) -> bool {
        if let Some(error) = state.objects.check(step.work) {
            let BackendStep { ticket, work, memory, .. } = step;
            drop(memory);
            self.skip(state, ticket, &uses_of(work), error);
            return false;
        }
        self.pass_on(state, step)
    }

    /// As [`run`](Self::run), for work that was checked.
    pub(super) fn pass_on(&self, state: &mut State, step: BackendStep<'_>) -> bool {
        let BackendStep { ticket, after, work, host, is_last, memory } = step;
        let number = self.reports.begin(ticket, is_last, memory, state.sampler.now);
        let after = self.translate(after);
        let submission = Submission { ticket: Ticket { number, ..ticket }, after: &after, work };
        // SAFETY: the blocks in `host` are staging memory of this submission alone, or memory of the graph that it
        // launches. `reports` keeps them until the backend has reported it complete. The rules about device memory
        // concern only the memory of this lease (see the rules of the module). Streams are
        // retired, graphs dropped and modules unloaded under the lock that is held.
        match unsafe { self.backend.submit(&submission, host) } {
            Ok(()) => {
                if is_last && let Some(time) = state.sampler.submitted() {
                    self.reports.telemetry.queue(time, &self.reports.outbox);
                }
                true
            }
            Err(error) => {
                let error = self.reports.cause(error);
                state.objects.spread(&uses_of(work), &error);
                self.reports.refuse(ticket, error);
                false
            }
        }
    }

    /// A submission failed before it reached the backend: the contents that it should have written are lost.
    pub(super) fn skip(&self, state: &State, ticket: Ticket, uses: &[Use], error: Error) {
        state.objects.spread(uses, &error);
        self.reports.skip(ticket, error);
    }

    /// The tickets of the backend for tickets of the client.
    pub(super) fn translate(&self, after: &[Ticket]) -> Vec<Ticket> {
        let ticket = |ticket: &Ticket| match self.reports.stage(*ticket) {
            Stage::Submitted(number) if number > 0 => Some(Ticket { number, ..*ticket }),
            _ => None,
        };
        after.iter().filter_map(ticket).collect()
    }

    pub(super) fn allocate(
        &self,
        state: &mut State,
        at: Ticket,
        pool: PoolId,
        id: AllocId,
        bytes: u64,
    ) {
        let charge = match self.quota.charge(bytes) {
            Ok(charge) => charge,
            Err(error) => {
                state.objects.refused(id, &error);
                return self.reports.skip(at, error);
            }
        };
        // Before the allocation: the pools together must not reserve more than the quota.
        self.trim(state.pools.made(pool, bytes, self.quota.limit_and_used().0));
        let number = self.reports.begin(at, true, StepMemory::Nothing, state.sampler.now);
        let at_backend = Ticket { number, ..at };
        let control = match pool {
            PoolId::DEFAULT => Control::Allocate { id, bytes, at: at_backend },
            pool => Control::AllocateIn { pool, id, bytes, at: at_backend },
        };
        // SAFETY: gives nothing up.
        match unsafe { self.backend.control(control) } {
            Ok(()) => {
                state.objects.made(id, charge);
                self.reports.telemetry.changed(&self.reports.outbox);
            }
            Err(error) => {
                state.pools.not_made(pool, bytes);
                let error = self.reports.cause(error);
                state.objects.refused(id, &error);
                self.reports.refuse(at, error);
            }
        }
    }

    pub(super) fn free(&self, state: &mut State, stream: StreamId, after: &[Ticket], id: AllocId) {
        let mut charge = state.objects.remove(id);
        let dropped_pool = state.pools.freed(id, charge.as_ref().map_or(0, Charge::bytes));
        if charge.take().is_some() {
            self.reports.telemetry.changed(&self.reports.outbox);
        }
        let after = self.translate(after);
        self.control(Control::Free { id, stream, after });
        if let Some(id) = dropped_pool {
            self.control(Control::DropPool { id });
        }
    }
}
