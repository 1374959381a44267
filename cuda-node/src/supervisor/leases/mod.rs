//! The leases of a node: requests of clients and of the operator, and the lease table that decides on them.

mod actions;
mod restart;
mod status;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use cuda_core::{DeviceInfo, Error, protocol::Status};
use cuda_lease::{
    authority::{Claims, Fingerprint, Tenant, TokenError, TokenKey},
    wire::{Allocate, Granted, Limits, Renewed},
};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::{Instrument, Span};

pub(super) use self::restart::LeftLeases;
use super::{
    audit::{Audit, Entry as Decision},
    blobs::{BlobStore, Blobs},
    jobs::Jobs,
    sessions::{Session, SessionTerms, Turn, Turns},
    spans::{self, Traced},
    state_folder::StateFolder,
    streams::Refusal,
    tenants::{Account, Tenants},
    workers::{WorkerHandle, Workers},
};
use crate::{
    leases::{Cause, LeaseId, LeaseRequest, LeaseTable, Placement, Renewal, RequestId, SlotId},
    metrics::{Meter, NodeMetrics},
    process::SandboxReport,
    quotas::Quotas,
};

/// The time between two looks at the memory of all workers.
const MEMORY_INTERVAL: Duration = Duration::from_millis(250);

/// A client: its tenant, the key of its certificate, and its connection.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) tenant: Tenant,
    pub(super) key: Fingerprint,
    pub(super) account: Arc<Account>,
    /// The time at which its certificate expires, and with it the connection. `None` if it has no certificate.
    pub(super) certificate_ends: Option<SystemTime>,
    /// The number of the connection.
    pub(super) connection: u64,
}

/// A device of the node.
pub(super) struct LeasedDevice {
    pub(super) info: DeviceInfo,
    /// The features of the device, as in [`features`](cuda_lease::wire::features).
    pub(super) features: u64,
    /// The sandbox of its first worker, if workers are processes.
    pub(super) sandbox: Option<SandboxReport>,
    pub(super) workers: Arc<Workers>,
}

/// The leases of a node.
pub(super) struct Leases {
    started: Instant,
    key: TokenKey,
    slots: Vec<LeasedDevice>,
    /// The limits of every session, without its memory.
    limits: Limits,
    audit: Audit,
    /// The state on disk, of a node whose leases outlive it. Locked from the state of a lease to its record, so that the
    /// last record is the latest one.
    folder: Option<Arc<tokio::sync::Mutex<StateFolder>>>,
    /// Whether the leases were left to the next node.
    has_left: AtomicBool,
    metrics: Arc<NodeMetrics>,
    tenants: Tenants,
    blobs: Arc<BlobStore>,
    state: Mutex<State>,
    /// The table may have a new deadline.
    changed: Notify,
}

struct State {
    table: LeaseTable,
    entries: FxHashMap<LeaseId, Entry>,
    /// The clients that wait for a queued request. A client that repeats its request waits beside its first one.
    waiting: FxHashMap<RequestId, Vec<oneshot::Sender<Result<LeaseId, Refusal>>>>,
    blobs: FxHashMap<Tenant, Arc<Blobs>>,
    /// The serial number of the next token.
    serial: u64,
}

/// A lease that is in the table.
struct Entry {
    slot: SlotId,
    quota: u64,
    is_session_exclusive: bool,
    /// `None` while its worker starts, then `Ok`, or the reason why it did not start.
    ready: watch::Sender<Option<Result<(), Refusal>>>,
    worker: Option<WorkerHandle>,
    /// `Some` while its worker starts. Dropping it ends the start.
    starting: Option<oneshot::Sender<()>>,
    session: Option<Arc<Session>>,
    jobs: Option<Arc<Jobs>>,
    meter: Arc<Meter>,
    /// The trace of the request. `None` until the request sets it.
    traced: Option<Traced>,
    /// The time of its grant.
    since: Duration,
    /// The key of the client that acquired it or last renewed it. `None` until the request sets it.
    owner: Option<Fingerprint>,
    /// Whether the lease outlives the connections of its client, once the client has confirmed the grant.
    is_detached: bool,
    /// Whether the client has the token, as far as the node knows.
    is_confirmed: bool,
    /// Whether the record of the lease says so.
    is_confirmation_kept: bool,
    /// The connections of its client. Empty for a detached lease whose grant is confirmed.
    connections: FxHashSet<u64>,
    cause: Option<Cause>,
    /// The GPU memory that the worker used when it was last asked for, in bytes.
    memory_used: Option<u64>,
}

impl Leases {
    pub(super) fn new(
        table: LeaseTable,
        key: TokenKey,
        slots: Vec<LeasedDevice>,
        limits: Limits,
        audit: Audit,
        folder: Option<StateFolder>,
    ) -> Arc<Self> {
        let tenants = Tenants::new(table.quotas().clone());
        let (entries, waiting, blobs, serial) = Default::default();
        let state = Mutex::new(State { table, entries, waiting, blobs, serial });
        let started = Instant::now();
        let (metrics, blobs, changed) = Default::default();
        Arc::new(Self {
            started,
            key,
            slots,
            limits,
            audit,
            folder: folder.map(|folder| Arc::new(tokio::sync::Mutex::new(folder))),
            has_left: AtomicBool::new(false),
            metrics,
            tenants,
            blobs,
            state,
            changed,
        })
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Carries out actions that become due with time, until the node ends.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let deadline = self.with(|_, _| ()).1;
            let due = deadline.map(|at| at.saturating_sub(self.now()));
            match due {
                None => self.changed.notified().await,
                Some(due) => {
                    // Not more precise than the timer of the runtime.
                    let due = due.max(Duration::from_millis(1));
                    _ = tokio::time::timeout(due, self.changed.notified()).await;
                }
            }
        }
    }

    /// Reports the memory of workers to the table, until the node ends.
    ///
    /// A worker checks allocations against the quota of its lease. Variables of modules, stacks of kernels, and the
    /// heap and the print buffer of the device do not pass that check: the driver allocates them. So the supervisor
    /// asks NVML how much each worker uses.
    pub(super) async fn watch_memory(self: Arc<Self>) {
        loop {
            tokio::time::sleep(MEMORY_INTERVAL).await;
            let probes = self.with(|state, _| {
                let workers = state
                    .entries
                    .iter()
                    .filter_map(|(lease, entry)| Some((*lease, entry.worker.as_ref()?.memory()?)));
                workers.collect::<Vec<_>>()
            });
            if probes.0.is_empty() {
                continue;
            }
            let ask = move || {
                let used =
                    probes.0.into_iter().filter_map(|(lease, probe)| Some((lease, probe.used()?)));
                used.collect::<Vec<_>>()
            };
            let used = match tokio::task::spawn_blocking(ask).await {
                Ok(used) => used,
                Err(error) => {
                    tracing::error!(%error, "the memory of workers was not read");
                    continue;
                }
            };
            self.change(|state, now| {
                for (lease, used) in used {
                    if let Some(entry) = state.entries.get_mut(&lease) {
                        entry.memory_used = Some(used);
                    }
                    state.table.memory_used(now, lease, used);
                }
            });
        }
    }

    /// Calls `call` with the state, and carries out the actions that follow. Returns the next deadline too.
    fn with<T>(
        self: &Arc<Self>,
        call: impl FnOnce(&mut State, Duration) -> T,
    ) -> (T, Option<Duration>) {
        let now = self.now();
        let mut state = self.state.lock();
        let result = call(&mut state, now);
        while let Some(action) = state.table.poll(now) {
            self.act(&mut state, action);
        }
        let deadline = state.table.next_deadline();
        (result, deadline)
    }

    /// As [`with`](Self::with), for calls that may change the next deadline.
    fn change<T>(self: &Arc<Self>, call: impl FnOnce(&mut State, Duration) -> T) -> T {
        let (result, _) = self.with(call);
        self.changed.notify_one();
        result
    }

    fn address(&self, slot: SlotId) -> String {
        self.slots.get(slot.0).map(|slot| slot.info.address.clone()).unwrap_or_default()
    }

    /// Grants a lease, perhaps after a wait. `confirms` states whether the client confirms the grant.
    pub(super) async fn allocate(
        self: &Arc<Self>,
        client: &Client,
        request: Allocate,
        confirms: bool,
    ) -> Result<Granted, Refusal> {
        let (tenant, memory) = (Some(client.tenant.as_str()), Some(request.min_vram));
        let started = Instant::now();
        let traced = spans::lease(request.trace, &client.tenant);
        let span = traced.span.clone();
        let granted = match self.audit.check() {
            Ok(()) => self.place(client, request, confirms, traced).instrument(span.clone()).await,
            Err(refusal) => Err(refusal),
        };
        let _entered = span.entered();
        match &granted {
            Ok(granted) => {
                let device = &*granted.device.address;
                tracing::info!(lease = granted.lease, device, "a lease was granted");
            }
            Err((status, _)) => tracing::info!(%status, "a request for a lease was refused"),
        }
        if granted.is_ok() {
            self.metrics.record(started.elapsed(), |latencies| &mut latencies.admission);
        }
        if let Err((status, detail)) = &granted {
            let (event, reason) = ("refused", Some(format!("{status}: {detail}")));
            self.audit.write(&Decision { event, tenant, memory, reason, ..Decision::default() });
        }
        granted
    }

    async fn place(
        self: &Arc<Self>,
        client: &Client,
        request: Allocate,
        confirms: bool,
        traced: Traced,
    ) -> Result<Granted, Refusal> {
        let mut wanted = LeaseRequest::new(client.tenant.clone(), request.nonce, request.min_vram);
        wanted.lease_secs = request.lease_secs;
        wanted.class = request.exclusivity;
        wanted.slot = request.device;
        wanted.wait = Duration::from_millis(request.wait_ms.into());
        wanted.priority = request.priority;
        let (sender, receiver) = oneshot::channel();
        let placed = self.change(|state, now| {
            let placed = state.table.request(now, wanted).map_err(refusal)?;
            Ok(match placed {
                Placement::Leased(lease) => Ok(lease),
                Placement::Queued { request, .. } => {
                    state.waiting.entry(request).or_default().push(sender);
                    Err(request)
                }
            })
        })?;
        let lease = match placed {
            Ok(lease) => lease,
            Err(request) => {
                let mut waiter = Waiter { leases: self, request, receiver };
                let lease = (&mut waiter.receiver).await.unwrap_or_else(|_| Err(unknown()))?;
                // The audit log may have failed during the wait.
                if let Err(refused) = self.audit.check() {
                    _ = self.change(|state, now| state.table.free(now, lease));
                    return Err(refused);
                }
                lease
            }
        };
        traced.span.record("lease", lease.0);
        self.ready(client, lease, request.detached, traced).await?;
        if request.detached && !confirms {
            self.change(|state, now| state.confirmed(now, lease))?;
        }
        if let Err(refused) = self.write_lease(client, lease).await {
            self.change(|state, now| _ = state.table.free(now, lease));
            return Err(refused);
        }
        self.grant(client, lease)
    }

    /// Waits until the worker of a lease is ready.
    async fn ready(
        self: &Arc<Self>,
        client: &Client,
        lease: LeaseId,
        is_detached: bool,
        traced: Traced,
    ) -> Result<(), Refusal> {
        let mut ready = self.change(|state, now| {
            // The lease may have ended meanwhile, with a cause.
            state.table.reconnected(now, lease).map_err(refusal)?;
            let entry = state.entries.get_mut(&lease).ok_or_else(unknown)?;
            let owner = entry.owner.replace(client.key);
            if owner.is_some_and(|owner| owner != client.key) {
                self.log_renewal(client, lease, true);
            }
            entry.is_detached = is_detached;
            entry.traced = Some(traced);
            let ready = entry.ready.subscribe();
            state.connected(now, lease, client.connection)?;
            Ok(ready)
        })?;
        let ready = ready.wait_for(Option::is_some).await.map_err(|_| unknown())?;
        ready.clone().unwrap_or_else(|| Err(unknown()))
    }

    fn grant(self: &Arc<Self>, client: &Client, lease: LeaseId) -> Result<Granted, Refusal> {
        self.change(|state, _| {
            let entry = state.entries.get(&lease).ok_or_else(unknown)?;
            let slot = self.slots.get(entry.slot.0).ok_or_else(unknown)?;
            let limits = Limits { memory: entry.quota, ..self.limits };
            let view = state.table.lease(lease).ok_or_else(unknown)?;
            let (generation, remaining) =
                (view.generation as u32, view.remaining.unwrap_or_default());
            let token = self.token(state, client, lease, generation);
            Ok(Granted {
                lease: lease.0,
                token,
                generation,
                expires_in_ms: millis(remaining),
                device: slot.info.clone(),
                limits,
                features: Some(slot.features),
            })
        })
    }

    fn token(&self, state: &mut State, client: &Client, lease: LeaseId, generation: u32) -> Bytes {
        state.serial += 1;
        let (serial, client) = (state.serial, client.key);
        let claims = Claims { lease: lease.0, generation, serial, client };
        Bytes::copy_from_slice(self.key.issue(&claims).as_bytes())
    }

    /// Checks a token. Returns the generation that it states.
    fn verify(&self, client: &Client, lease: u64, token: &[u8]) -> Result<u64, Refusal> {
        let claims = self.key.verify(token, client.key);
        self.check_claims(client, lease, claims)
    }

    /// Checks a token that may have been issued for another key of the tenant. Returns the generation that it states.
    fn verify_for_renewal(
        &self,
        client: &Client,
        lease: u64,
        token: &[u8],
    ) -> Result<u64, Refusal> {
        self.check_claims(client, lease, self.key.authenticate(token))
    }

    /// Checks that a token is for this lease, and that the lease belongs to the tenant of the client. Records a refusal.
    fn check_claims(
        &self,
        client: &Client,
        lease: u64,
        claims: Result<Claims, TokenError>,
    ) -> Result<u64, Refusal> {
        let checked = self.generation_of(client, lease, claims);
        if let Err((status, detail)) = &checked {
            let (tenant, lease) = (Some(client.tenant.as_str()), Some(lease));
            let reason = Some(format!("{status}: {detail}"));
            self.audit.write(&Decision {
                event: "denied",
                tenant,
                lease,
                reason,
                ..Decision::default()
            });
        }
        checked
    }

    /// Whatever a token states, a lease acts for its own tenant only.
    fn generation_of(
        &self,
        client: &Client,
        lease: u64,
        claims: Result<Claims, TokenError>,
    ) -> Result<u64, Refusal> {
        let state = self.state.lock();
        let tenant = state.table.lease(LeaseId(lease)).map(|view| view.tenant);
        if tenant.is_some_and(|tenant| *tenant != client.tenant) {
            let message = format!(
                "lease {lease} does not belong to tenant {}; use a certificate of the tenant that acquired it",
                client.tenant
            );
            return Err((Status::Unauthorized, message));
        }
        let claims = claims.map_err(|error| (Status::Unauthorized, error.to_string()))?;
        if claims.lease != lease {
            let message = format!(
                "the token belongs to lease {}, the request names lease {lease}; use the token of lease {lease}",
                claims.lease
            );
            return Err((Status::Unauthorized, message));
        }
        Ok(claims.generation.into())
    }

    /// Renews a lease. The token may be that of another key of the tenant: the new token is for the key of this client.
    pub(super) async fn renew(
        self: &Arc<Self>,
        client: &Client,
        lease: u64,
        token: &[u8],
        secs: u32,
    ) -> Result<Renewed, Refusal> {
        let generation = self.verify_for_renewal(client, lease, token)?;
        let id = LeaseId(lease);
        let (renewed, is_renewed) = self.change(|state, now| {
            let (renewed, is_renewed) = match state.table.renew(now, id, generation, secs) {
                Ok(renewed) => (renewed, true),
                // A lease that cannot be renewed is of use until its end, also with another key.
                Err(refused) => {
                    (state.unchanged(client, now, id, generation).ok_or(refusal(refused))?, false)
                }
            };
            state.confirmed(now, id)?;
            let entry = state.entries.get_mut(&id).ok_or_else(unknown)?;
            let has_moved = entry.owner.replace(client.key) != Some(client.key);
            self.log_renewal(client, id, has_moved);
            Ok((renewed, is_renewed))
        })?;
        let unanswered = is_renewed.then(|| UnansweredRenewal { leases: self, lease: id });
        self.write_lease(client, id).await?;
        // The client gets the new token.
        std::mem::forget(unanswered);
        Ok(self.change(|state, _| {
            let generation = renewed.generation as u32;
            let token = self.token(state, client, id, generation);
            Renewed { token, generation, expires_in_ms: millis(renewed.remaining) }
        }))
    }

    /// Writes to the audit log that a lease was renewed, or has another owner. Call it in the step that changes the lease:
    /// the client may go before the next one.
    fn log_renewal(&self, client: &Client, lease: LeaseId, has_moved: bool) {
        let (tenant, event, lease) = (Some(client.tenant.as_str()), "renewed", Some(lease.0));
        let reason = has_moved.then(|| format!("moved to the key {}", client.key));
        self.audit.write(&Decision { event, tenant, lease, reason, ..Decision::default() });
    }

    /// Confirms the grant of a lease.
    pub(super) async fn confirm(
        self: &Arc<Self>,
        client: &Client,
        lease: u64,
        token: &[u8],
    ) -> Result<(), Refusal> {
        let generation = self.verify(client, lease, token)?;
        let id = LeaseId(lease);
        let is_kept = self.change(|state, now| {
            state.table.authorize(now, id, generation).map_err(refusal)?;
            state.confirmed(now, id)?;
            let entry = state.entries.get(&id).ok_or_else(unknown)?;
            Ok(!entry.is_detached || entry.is_confirmation_kept)
        })?;
        if is_kept {
            return Ok(());
        }
        self.write_lease(client, id).await.inspect_err(|_| {
            // The program of the client gets this error, and no token.
            self.change(|state, now| _ = state.table.free(now, id));
        })
    }

    /// Ends a lease. Without a token, the client has to be its owner.
    pub(super) async fn free(
        self: &Arc<Self>,
        client: &Client,
        lease: u64,
        token: &[u8],
    ) -> Result<(), Refusal> {
        let id = LeaseId(lease);
        let generation = match token {
            [] => None,
            token => Some(self.verify(client, lease, token)?),
        };
        let is_freed = self.change(|state, now| {
            match generation {
                Some(generation) => {
                    state.table.check_generation(now, id, generation).map_err(refusal)?;
                }
                None => state.check_owner(client, id)?,
            }
            state.table.free(now, id).map_err(refusal)
        })?;
        // The client may repeat the request while the worker ends.
        if is_freed {
            let (tenant, event) = (Some(client.tenant.as_str()), "freed");
            let lease = Some(lease);
            self.audit.write(&Decision { event, tenant, lease, ..Decision::default() });
        }
        let _place = client.account.record_place().await;
        self.write_end(id).await.map_err(|_| {
            let detail = format!(
                "lease {lease} has ended, but the node failed to write that to its state folder: if the node restarts \
                 before the worker has ended, the lease goes on; ask its operator to free disk space"
            );
            (Status::Internal, detail)
        })
    }

    /// Ends a lease after a notice period. Returns the time until its end: the lease may expire before, or have an earlier
    /// end.
    ///
    /// # Errors
    /// There is no such lease, or its end has begun.
    pub(super) async fn revoke(
        self: &Arc<Self>,
        lease: u64,
        reason: String,
        notice: Duration,
    ) -> Result<Duration, Refusal> {
        let why = Some(reason.clone());
        let revoked = self.change(|state, now| {
            state.table.revoke(now, LeaseId(lease), reason, notice)?;
            Ok(state.ends_in(LeaseId(lease)))
        });
        let ends_in = revoked.map_err(|refused: crate::leases::Refusal| {
            let (status, detail) = refusal(refused);
            // The rest is advice for a client.
            let fact = detail.split_once("; ").map_or(&*detail, |(fact, _)| fact);
            (status, format!("{fact}; the status page and the audit log have the leases"))
        })?;
        let event = "revoked";
        self.audit.write(&Decision {
            event,
            lease: Some(lease),
            reason: why,
            ..Decision::default()
        });
        self.write_end(LeaseId(lease)).await.map_err(|_| {
            let detail = format!(
                "lease {lease} was revoked, but the node failed to write that to its state folder: if the node restarts \
                 before the end of the lease, the lease goes on; free disk space, and revoke the lease again if it goes on"
            );
            (Status::Internal, detail)
        })?;
        Ok(ends_in)
    }

    /// Puts a device back into service. Returns whether it was fenced.
    ///
    /// # Errors
    /// There is no such device.
    pub(super) async fn unfence(self: &Arc<Self>, device: &str) -> Result<bool, Refusal> {
        let found = self.slots.iter().position(|slot| slot.info.address == device);
        let Some(slot) = found.map(SlotId) else {
            let names: Vec<_> = self.slots.iter().map(|slot| &*slot.info.address).collect();
            let detail = format!("there is no device {device}; the node has {}", names.join(", "));
            return Err((Status::NotFound, detail));
        };
        let was_fenced = self
            .change(|state, now| {
                let was_fenced = state.table.slots().any(|view| view.id == slot && view.is_fenced);
                state.table.unfence(now, slot).map(|()| was_fenced)
            })
            .map_err(refusal)?;
        if was_fenced {
            let event = "unfenced";
            self.audit.write(&Decision { event, device: Some(device), ..Decision::default() });
        }
        self.write_fence(slot).await.map_err(|_| {
            let detail = format!(
                "{device} is in service again, but the node failed to write that to its state folder: after a restart \
                 the device is fenced; free disk space, then unfence it again"
            );
            (Status::Internal, detail)
        })?;
        Ok(was_fenced)
    }

    /// Returns the session of a lease. The first call starts it.
    pub(super) async fn session(
        self: &Arc<Self>,
        client: &Client,
        lease: u64,
        token: &[u8],
        epoch: u32,
    ) -> Result<Arc<Session>, Refusal> {
        let of_lease = |entry: &mut Entry, blobs| {
            if let Some(session) = &entry.session {
                let other =
                    "the lease has another session; resume that one, or acquire a new lease";
                return if session.epoch == epoch {
                    Ok(session.clone())
                } else {
                    Err((Status::BadRequest, other.into()))
                };
            }
            self.start_session(entry, LeaseId(lease), epoch, blobs)
        };
        self.access(client, lease, token, of_lease).await
    }

    fn start_session(
        self: &Arc<Self>,
        entry: &mut Entry,
        lease: LeaseId,
        epoch: u32,
        blobs: Arc<Blobs>,
    ) -> Result<Arc<Session>, Refusal> {
        let worker = entry.worker.as_mut().and_then(|worker| worker.lanes.take());
        let died = self.error_of_dead_worker(lease, self.address(entry.slot));
        let worker = worker.ok_or_else(unknown)?;
        let turns = entry.is_session_exclusive.then(|| self.turns(lease));
        let meter = entry.meter.clone();
        let span = entry.traced.as_ref().map(|traced| spans::session(traced, lease.0).span);
        let terms = SessionTerms { epoch, died, span: span.unwrap_or_else(Span::none) };
        let session = Session::start(terms, worker, blobs, meter, turns);
        entry.session = Some(session.clone());
        self.watch(lease, session.clone());
        Ok(session)
    }

    /// Returns the queue of a lease's stateless submits and the blobs of its tenant. The lease needs no session. The
    /// first call starts the queue.
    pub(super) async fn jobs(
        self: &Arc<Self>,
        client: &Client,
        lease: u64,
        token: &[u8],
    ) -> Result<(Arc<Jobs>, Arc<Blobs>), Refusal> {
        let of_lease = |entry: &mut Entry, blobs: Arc<Blobs>| {
            if entry.is_session_exclusive {
                let detail = "a lease of the class `session` runs no stateless submits; use its session, or acquire a lease of another class";
                return Err((Status::BadRequest, detail.into()));
            }
            if let Some(jobs) = &entry.jobs {
                return Ok((jobs.clone(), blobs));
            }
            let socket = entry.worker.as_mut().and_then(|worker| worker.jobs.take());
            let socket = socket.ok_or_else(unknown)?;
            let leases = Arc::downgrade(self);
            let ended = move || {
                if let Some(leases) = leases.upgrade() {
                    leases.change(|state, now| state.worker_died(now, LeaseId(lease)));
                }
            };
            let jobs =
                entry.jobs.insert(Jobs::start(socket, blobs.clone(), entry.meter.clone(), ended));
            Ok((jobs.clone(), blobs))
        };
        self.access(client, lease, token, of_lease).await
    }

    /// Returns the blobs of a lease's tenant, and the session of the lease if it has one.
    pub(super) async fn blobs(
        self: &Arc<Self>,
        client: &Client,
        lease: u64,
        token: &[u8],
    ) -> Result<(Arc<Blobs>, Option<Arc<Session>>), Refusal> {
        let of_lease = |entry: &mut Entry, blobs| Ok((blobs, entry.session.clone()));
        self.access(client, lease, token, of_lease).await
    }

    /// The maximum number of bytes of a blob.
    pub(super) fn blob_limit(&self) -> u64 {
        self.limits.module_bytes
    }

    /// Calls `call` with a lease that a client may use, and with the blobs of the client's tenant. The first call gives
    /// the lease to its worker. The first use of a detached lease confirms it, which the next node has to know.
    async fn access<T>(
        self: &Arc<Self>,
        client: &Client,
        lease: u64,
        token: &[u8],
        call: impl FnOnce(&mut Entry, Arc<Blobs>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let (id, generation) = (LeaseId(lease), self.verify(client, lease, token)?);
        let (accessed, is_kept) = self.change(|state, now| {
            state.table.authorize(now, id, generation).map_err(refusal)?;
            state.confirmed(now, id)?;
            state.connected(now, id, client.connection)?;
            let of_tenant = || self.blobs.of(&client.tenant);
            let blobs = state.blobs.entry(client.tenant.clone()).or_insert_with(of_tenant).clone();
            let entry = state.entries.get_mut(&id).ok_or_else(unknown)?;
            let assign = self.assign_of(entry, id);
            if let Some(worker) = &mut entry.worker {
                worker.begin(&assign);
            }
            let is_kept = !entry.is_detached || entry.is_confirmation_kept;
            call(entry, blobs).map(|accessed| (accessed, is_kept))
        })?;
        if !is_kept {
            self.write_lease(client, id).await?;
        }
        Ok(accessed)
    }

    /// The turns of a session-exclusive lease. Reports are made by a task: the caller may hold the state.
    fn turns(self: &Arc<Self>, lease: LeaseId) -> Turns {
        let (reports, mut reported) = mpsc::unbounded_channel();
        let leases = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(turn) = reported.recv().await {
                let Some(leases) = leases.upgrade() else { return };
                leases.change(|state, now| match turn {
                    Turn::Busy => state.table.session_busy(now, lease),
                    Turn::Idle => state.table.session_idle(now, lease),
                });
            }
        });
        Turns::new(move |turn| _ = reports.send(turn))
    }

    /// Finds the error of a client whose worker ended by itself.
    fn error_of_dead_worker(
        self: &Arc<Self>,
        lease: LeaseId,
        address: String,
    ) -> Box<dyn FnOnce() -> Error + Send> {
        let leases = Arc::downgrade(self);
        Box::new(move || {
            let limit = leases
                .upgrade()
                .and_then(|leases| leases.with(|state, _| state.exceeded_host_memory(lease)).0);
            let cause = limit.map(|limit| Cause::OutOfHostMemory { limit });
            actions::end_of(lease, cause.as_ref().or(Some(&Cause::WorkerDied)), &address)
        })
    }

    /// Reports the end of a session's worker.
    fn watch(self: &Arc<Self>, lease: LeaseId, session: Arc<Session>) {
        let leases = self.clone();
        tokio::spawn(async move {
            session.ended().await;
            leases.change(|state, now| state.worker_died(now, lease));
        });
    }

    /// Records the end of a connection. A lease without another connection ends after the reconnect window.
    pub(super) fn disconnected(self: &Arc<Self>, connection: u64) {
        self.change(|state, now| {
            let State { table, entries, .. } = state;
            for (lease, entry) in entries {
                if entry.connections.remove(&connection) && entry.connections.is_empty() {
                    table.disconnected(now, *lease);
                }
            }
        });
    }

    /// Writes the ends of all leases to the audit log and to the state folder, when the node stops. Their workers may
    /// still run. Waits for the audit log for at most `limit`.
    pub(super) fn log_ends(&self, limit: Duration) {
        let folder = self.folder.as_ref().map(|folder| folder.try_lock());
        if let Some(Err(_)) = folder {
            tracing::error!(
                "the ends of the leases cannot be written to the state folder, because the node still writes to it; the next node will report that their workers died"
            );
        }
        let folder = folder.and_then(Result::ok);
        for lease in self.state.lock().table.leases() {
            if let Some(Err(error)) = folder.as_ref().map(|folder| folder.end(lease.id.0)) {
                tracing::error!(lease = lease.id.0, %error, "the end of a lease cannot be written to the state folder; the next node will report that its worker died");
            }
            let (event, tenant) = ("ended", Some(lease.tenant.as_str()));
            let (lease, reason) = (Some(lease.id.0), Some("the node stops".to_owned()));
            self.audit.write(&Decision { event, tenant, lease, reason, ..Decision::default() });
        }
        self.audit.flush(limit);
    }

    /// The accounts of tenants.
    pub(super) fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// The number of the leases of a tenant.
    pub(super) fn count_of(&self, tenant: &Tenant) -> usize {
        self.state.lock().table.leases().filter(|lease| lease.tenant == tenant).count()
    }

    /// Waits until a lease has ended.
    pub(super) async fn ended(&self, lease: u64) {
        let entry =
            self.state.lock().entries.get(&LeaseId(lease)).map(|entry| entry.ready.subscribe());
        if let Some(mut ready) = entry {
            _ = ready.wait_for(|ready| matches!(ready, Some(Err(_)))).await;
        }
    }

    /// The number of leases.
    pub(super) fn count(&self) -> usize {
        self.state.lock().table.leases().count()
    }

    /// The audit log.
    pub(super) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// The metrics of the node.
    pub(super) fn metrics(&self) -> &Arc<NodeMetrics> {
        &self.metrics
    }

    /// Replaces the quotas of tenants.
    pub(super) fn set_quotas(self: &Arc<Self>, quotas: Quotas) {
        self.tenants.set_quotas(quotas.clone());
        self.change(|state, _| state.table.set_quotas(quotas));
    }
}

impl State {
    /// The time until a lease ends: it expires, or has an announced end.
    fn ends_in(&self, lease: LeaseId) -> Duration {
        let view = self.table.lease(lease);
        let ends = view.and_then(|view| Some((view.remaining?, view.announced)));
        let (remaining, announced) = ends.unwrap_or_default();
        announced.map_or(remaining, |announced| announced.min(remaining))
    }

    /// The worker of a lease has ended by itself.
    fn worker_died(&mut self, now: Duration, lease: LeaseId) {
        let exceeded = self.exceeded_host_memory(lease);
        self.table.worker_died(now, lease, exceeded);
    }

    /// The limit of host memory that the worker of a lease died of.
    fn exceeded_host_memory(&self, lease: LeaseId) -> Option<u64> {
        self.entries.get(&lease)?.worker.as_ref()?.exceeded_host_memory()
    }

    /// A client uses a lease on a connection. A detached lease whose grant is confirmed has no connections.
    fn connected(&mut self, now: Duration, lease: LeaseId, connection: u64) -> Result<(), Refusal> {
        self.table.reconnected(now, lease).map_err(refusal)?;
        let entry = self.entries.get_mut(&lease).ok_or_else(unknown)?;
        if !(entry.is_detached && entry.is_confirmed) {
            entry.connections.insert(connection);
        }
        Ok(())
    }

    /// A client has the token of a lease. A detached lease needs no connection any more.
    fn confirmed(&mut self, now: Duration, lease: LeaseId) -> Result<(), Refusal> {
        let entry = self.entries.get_mut(&lease).ok_or_else(unknown)?;
        if !entry.is_confirmed {
            entry.is_confirmed = true;
            if entry.is_detached {
                entry.connections.clear();
                self.table.reconnected(now, lease).map_err(refusal)?;
            }
        }
        Ok(())
    }

    /// The terms of a lease that is not renewed, for a client of its tenant whose key is new.
    fn unchanged(
        &mut self,
        client: &Client,
        now: Duration,
        lease: LeaseId,
        generation: u64,
    ) -> Option<Renewal> {
        if self.entries.get(&lease)?.owner == Some(client.key) {
            return None;
        }
        self.table.authorize(now, lease, generation).ok()?;
        let view = self.table.lease(lease)?;
        Some(Renewal { generation: view.generation, remaining: view.remaining? })
    }

    /// Checks that a client has the key that acquired or last renewed a lease.
    fn check_owner(&self, client: &Client, lease: LeaseId) -> Result<(), Refusal> {
        if client.key == Fingerprint::UNAUTHENTICATED {
            let detail = "the node verifies no certificates, so it frees a lease with its token only; state the token, or wait until the lease expires";
            return Err((Status::Unauthorized, detail.into()));
        }
        let tenant = self.table.lease(lease).map(|view| view.tenant);
        let owner = self.entries.get(&lease).and_then(|entry| entry.owner);
        if tenant == Some(&client.tenant) && owner == Some(client.key) {
            return Ok(());
        }
        let detail = format!(
            "tenant {} has no lease {lease} that the key of this certificate has acquired; state its token",
            client.tenant
        );
        Err((Status::NotFound, detail))
    }
}

/// A renewal that is not answered. Dropping it keeps the earlier token of the client valid.
struct UnansweredRenewal<'a> {
    leases: &'a Arc<Leases>,
    lease: LeaseId,
}

impl Drop for UnansweredRenewal<'_> {
    fn drop(&mut self) {
        self.leases.change(|state, _| state.table.renewal_lost(self.lease));
    }
}

/// A client that waits for a queued request. When the last one stops waiting, the request leaves the queue.
struct Waiter<'a> {
    leases: &'a Arc<Leases>,
    request: RequestId,
    receiver: oneshot::Receiver<Result<LeaseId, Refusal>>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.receiver.is_terminated() {
            return;
        }
        self.receiver.close();
        let admitted = self.receiver.try_recv().ok().and_then(Result::ok);
        self.leases.change(|state, now| {
            if let Some(lease) = admitted {
                // The client is gone, but it may repeat the request within the reconnect window.
                state.table.disconnected(now, lease);
            } else if let Some(waiting) = state.waiting.get_mut(&self.request) {
                waiting.retain(|waiter| !waiter.is_closed());
                if waiting.is_empty() {
                    state.waiting.remove(&self.request);
                    state.table.cancel(now, self.request);
                }
            }
        });
    }
}

fn refusal(refusal: crate::leases::Refusal) -> Refusal {
    (refusal.status, refusal.message)
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

fn unknown() -> Refusal {
    (Status::NotFound, "the lease does not exist any more; acquire a new one".into())
}
