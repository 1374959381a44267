//! Carries out the actions of the lease table.

use std::{sync::Arc, time::Duration};

use cuda_core::{Error, protocol::Status};
use cuda_lease::wire::{Event, Exclusivity};
use rustc_hash::FxHashSet;
use tokio::sync::{oneshot, watch};

use super::{Entry, Leases, State, millis, refusal, unknown};
use crate::{
    leases::{Action, Cause, LeaseId, SlotId},
    metrics::Meter,
    quotas::Tenant,
    supervisor::{
        audit::Entry as Decision,
        streams::STALL,
        workers::{NotStarted, WorkerHandle},
    },
};

/// The time after the end of a lease in which its client hears of that: it takes the last events of its session, or the
/// replies of its submits, within [`STALL`].
const HEARD: Duration = STALL.saturating_add(Duration::from_secs(1));

impl Leases {
    pub(super) fn act(self: &Arc<Self>, state: &mut State, action: Action) {
        match action {
            Action::Admitted { request, lease } => {
                let waiting = state.waiting.remove(&request).unwrap_or_default();
                let sent = waiting.into_iter().map(|waiter| waiter.send(Ok(lease)).is_ok());
                // All of them, without a stop at the first.
                let is_awaited = sent.fold(false, |any, sent| any | sent);
                if !is_awaited {
                    // Its client has disconnected, but may repeat the request within the reconnect window.
                    state.table.disconnected(self.now(), lease);
                }
            }
            Action::Refused { request, refusal } => {
                for waiting in state.waiting.remove(&request).unwrap_or_default() {
                    _ = waiting.send(Err((refusal.status, refusal.message.clone())));
                }
            }
            Action::AssignWorker { lease, slot, quota } => self.assign(state, lease, slot, quota),
            Action::RunSession { lease } => state.set_turn(lease, true),
            Action::PauseSession { lease } => state.set_turn(lease, false),
            Action::AnnounceRevocation { lease, cause, notice } => {
                state.announce(lease, &cause, notice);
                self.keep_end(lease);
            }
            Action::StopAdmission { lease, cause } => {
                let view = state.table.lease(lease);
                self.audit.write(&Decision {
                    event: "ending",
                    tenant: view.as_ref().map(|view| view.tenant.as_str()),
                    lease: Some(lease.0),
                    reason: Some(cause.to_string()),
                    ..Decision::default()
                });
                state.announce(lease, &cause, Duration::ZERO);
                self.keep_end(lease);
                if let Some(entry) = state.entries.get_mut(&lease) {
                    if let Some(session) = &entry.session {
                        session.stop_admission();
                    }
                    entry.cause = Some(cause);
                }
            }
            Action::KillWorker { lease } => self.kill(state, lease),
            Action::Fence { slot } => {
                let device = self.slots.get(slot.0).map(|slot| &*slot.info.address);
                let leases = self.clone();
                tokio::spawn(async move { leases.write_fence(slot).await });
                self.audit.write(&Decision { event: "fenced", device, ..Decision::default() });
                tracing::error!(
                    ?device,
                    "a device is fenced: memory of an ended lease is not free"
                );
            }
        }
    }

    /// Records that the end of a lease has begun or was announced: it does not go on after a restart. A request that ends
    /// the lease waits for a record of its own, but its client may go before.
    fn keep_end(self: &Arc<Self>, lease: LeaseId) {
        if self.folder.is_some() {
            let leases = self.clone();
            // A failure is logged.
            tokio::spawn(async move { leases.write_end(lease).await });
        }
    }

    /// Starts a worker for a lease.
    fn assign(self: &Arc<Self>, state: &mut State, lease: LeaseId, slot: SlotId, quota: u64) {
        let Some(view) = state.table.lease(lease) else { return };
        let (is_session_exclusive, tenant) =
            (view.class == Exclusivity::Session, view.tenant.clone());
        // In this step: the client may disconnect before the answer. If its worker does not start, a refusal follows.
        self.audit.write(&Decision {
            event: "granted",
            tenant: Some(tenant.as_str()),
            lease: Some(lease.0),
            device: self.slots.get(slot.0).map(|slot| &*slot.info.address),
            memory: Some(quota),
            ..Decision::default()
        });
        let workers = self.slots.get(slot.0).map(|slot| slot.workers.clone());
        let (starting, cancelled) = oneshot::channel::<()>();
        let entry = Entry {
            slot,
            quota,
            is_session_exclusive,
            ready: watch::Sender::new(None),
            worker: None,
            starting: workers.is_some().then_some(starting),
            session: None,
            jobs: None,
            meter: Arc::new(Meter::new(self.metrics.clone())),
            traced: None,
            since: self.now(),
            owner: None,
            is_detached: false,
            is_confirmed: false,
            // Without a state folder there is no record.
            is_confirmation_kept: self.folder.is_none(),
            connections: FxHashSet::default(),
            cause: None,
            memory_used: None,
        };
        state.entries.insert(lease, entry);
        let Some(workers) = workers else { return };
        let leases = self.clone();
        tokio::spawn(async move {
            // Completes when the lease ends.
            let cancelled = async { _ = cancelled.await };
            let (launched, mut memory_is_back) = match workers.take(cancelled).await {
                Ok(mut worker) => match worker.assign(&tenant).await {
                    Ok(()) => (Ok(worker), true),
                    Err(error) => (Err(error), worker.kill(leases.report_ending(lease)).await),
                },
                Err(NotStarted { error, memory_is_back }) => (Err(error), memory_is_back),
            };
            let has_ended = leases.change(|state, now| state.launched(lease, launched, now));
            if let Some(worker) = has_ended {
                if let Some(worker) = worker {
                    memory_is_back = worker.kill(leases.report_ending(lease)).await;
                }
                leases.ended_lease(lease, Some(&tenant), memory_is_back).await;
            }
        });
    }

    /// Kills the worker of a lease, and reports when it has exited.
    fn kill(self: &Arc<Self>, state: &mut State, lease: LeaseId) {
        let Some(mut entry) = state.entries.remove(&lease) else { return };
        let tenant = state.table.lease(lease).map(|view| view.tenant.clone());
        let address = self.address(entry.slot);
        let refused = entry.cause.as_ref().map_or_else(unknown, |of| refusal(of.refusal(lease)));
        entry.ready.send_replace(Some(Err(refused)));
        if let Some(session) = &entry.session {
            session.end(end_of(lease, entry.cause.as_ref(), &address));
        }
        if let Some(jobs) = &entry.jobs {
            jobs.end();
        }
        let (worker, session, leases) = (entry.worker.take(), entry.session.take(), self.clone());
        // The task that starts the worker kills it, and reports when it has exited: until then it uses memory of the
        // device.
        if entry.starting.is_some() {
            return;
        }
        tokio::spawn(async move {
            let memory_is_back = match worker {
                Some(worker) => worker.kill(leases.report_ending(lease)).await,
                None => true,
            };
            if let Some(session) = session {
                session.worker_gone();
            }
            leases.ended_lease(lease, tenant.as_ref(), memory_is_back).await;
        });
    }

    /// Reports that a worker that was killed is on its way to its end.
    fn report_ending(self: &Arc<Self>, lease: LeaseId) -> impl Fn() {
        let leases = self.clone();
        move || leases.change(|state, now| _ = state.table.worker_ends(now, lease))
    }

    /// Records that the worker of a lease has exited.
    pub(super) async fn ended_lease(
        self: &Arc<Self>,
        lease: LeaseId,
        tenant: Option<&Tenant>,
        memory_is_back: bool,
    ) {
        let (event, name) = ("ended", tenant.map(Tenant::as_str));
        let ended = Decision { event, tenant: name, lease: Some(lease.0), ..Decision::default() };
        self.audit.write(&ended);
        // Before the disk, which may be slow: the table fences a device whose worker does not end in time.
        let slot = self.change(|state, now| {
            let slot = state.table.lease(lease).map(|view| view.slot);
            state.table.worker_gone(now, lease, memory_is_back);
            slot
        });
        if let Some(tenant) = tenant {
            tokio::spawn(self.clone().close_surplus(tenant.clone()));
        }
        // Otherwise the next node knows neither of the fence nor of the lease, and uses memory that may not be free.
        if let Some(slot) = slot.filter(|_| !memory_is_back)
            && self.write_fence(slot).await.is_err()
        {
            return;
        }
        self.forget(lease).await;
    }

    /// Closes the connections that have large windows for leases that have ended, after the time in which their clients hear
    /// of the ends.
    async fn close_surplus(self: Arc<Self>, tenant: Tenant) {
        tokio::time::sleep(HEARD).await;
        self.tenants.account(&tenant).wide.close_surplus(|| self.count_of(&tenant));
    }
}

impl State {
    /// Gives a lease its worker. If the lease has ended meanwhile, or ends because the worker did not start, returns the
    /// worker, if that has started. The caller then reports the end of the worker.
    fn launched(
        &mut self,
        lease: LeaseId,
        launched: cuda_core::Result<WorkerHandle>,
        now: Duration,
    ) -> Option<Option<WorkerHandle>> {
        let Some(entry) = self.entries.get_mut(&lease) else { return Some(launched.ok()) };
        match launched {
            Ok(worker) => {
                tracing::info!(lease = lease.0, pid = worker.pid(), "a lease has a worker");
                entry.starting = None;
                entry.worker = Some(worker);
                self.table.worker_ready(now, lease);
                entry.ready.send_replace(Some(Ok(())));
                None
            }
            // `starting` stays: `kill` leaves the report to the caller, which knows whether the memory is back.
            Err(error) => {
                tracing::error!(%error, "a worker did not start");
                let reason = error.to_string();
                entry.ready.send_replace(Some(Err((Status::Internal, reason.clone()))));
                self.table.worker_not_started(now, lease, reason);
                Some(None)
            }
        }
    }

    fn set_turn(&self, lease: LeaseId, has_turn: bool) {
        if let Some(session) = self.entries.get(&lease).and_then(|entry| entry.session.as_ref()) {
            session.set_turn(has_turn);
        }
    }

    fn announce(&self, lease: LeaseId, cause: &Cause, notice: Duration) {
        if let Some(session) = self.entries.get(&lease).and_then(|entry| entry.session.as_ref()) {
            let (status, detail) = (cause.status(), format!("lease {lease} {cause}"));
            let grace_ms = millis(notice).try_into().unwrap_or(u32::MAX);
            session.announce(Event::Ending { status, grace_ms, detail });
        }
    }
}

/// The error of a client whose lease ended.
pub(super) fn end_of(lease: LeaseId, cause: Option<&Cause>, address: &str) -> Error {
    let address = address.to_owned();
    match cause {
        Some(cause) => {
            let (status, detail) = (cause.status(), format!("lease {lease} {cause}"));
            match cause {
                Cause::Expired
                | Cause::Revoked { .. }
                | Cause::Preempted { .. }
                | Cause::OverMemory { .. }
                | Cause::OutOfHostMemory { .. }
                | Cause::Fenced
                | Cause::NoPlace => Error::Remote { address, status, detail },
                _ => Error::Disconnected { address, cause: detail, may_have_run: true },
            }
        }
        None => {
            Error::Disconnected { address, cause: "the lease ended".into(), may_have_run: true }
        }
    }
}
