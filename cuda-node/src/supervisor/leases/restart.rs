//! Leases that outlive the node: writes each change to disk before the client gets the answer, and restores the leases of
//! an earlier node.

use std::{
    io, mem,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use cuda_core::protocol::Status;
use rustc_hash::FxHashSet;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Client, Entry, Leases, State};
use crate::{
    leases::{KeptLease, LeaseId, SlotId},
    metrics::Meter,
    process::{self, WorkerRecord},
    supervisor::{
        audit::Entry as Decision,
        sessions::Session,
        state_folder::{LeaseRecord, LeftState, StateFolder},
        streams::Refusal,
        workers::{LeftProcess, WorkerHandle},
    },
    worker::{Assign, PROTOCOL},
};

/// The time without progress after which a worker that an earlier node has left does not end.
const KILL: Duration = Duration::from_secs(5);

/// The time with progress after which such a worker does not end. The node starts when it is over.
const LONG_KILL: Duration = Duration::from_secs(300);

/// The leases that an earlier node has left, with the processes of their workers.
#[derive(Default)]
pub(in crate::supervisor) struct LeftLeases {
    leases: Vec<(LeaseRecord, process::Result<LeftProcess>)>,
    ended: Vec<(LeaseRecord, process::Result<LeftProcess>)>,
    fenced: Vec<String>,
    first_id: u64,
}

impl LeftLeases {
    /// Takes over the processes, before others are launched: a process has its user id until it ends.
    pub(in crate::supervisor) fn new(
        left: LeftState,
        take_over: impl Fn(&WorkerRecord) -> process::Result<LeftProcess>,
    ) -> Self {
        let LeftState { leases, ended, fenced, first_id } = left;
        let with_process = |record: LeaseRecord| {
            let process = take_over(&record.worker);
            (record, process)
        };
        let [leases, ended] =
            [leases, ended].map(|records| records.into_iter().map(with_process).collect());
        let left = Self { leases, ended, fenced, first_id };
        left.remove_sockets();
        left
    }

    /// Removes the sockets of workers that have ended, except those at whose path a later worker has one.
    fn remove_sockets(&self) {
        let has_ended =
            |(_, process): &&(_, _)| matches!(process, Err(process::Error::Gone { .. }));
        let (gone, kept): (Vec<_>, Vec<_>) =
            self.leases.iter().chain(&self.ended).partition(has_ended);
        let is_kept = |gone: &LeaseRecord| {
            kept.iter().any(|(record, _)| record.worker.socket == gone.worker.socket)
        };
        let gone = gone.iter().filter(|(record, _)| !is_kept(record));
        gone.for_each(|(record, _)| record.worker.remove_socket());
    }
}

impl Drop for LeftLeases {
    /// Leaves the workers to the next node, because the start of this one failed.
    fn drop(&mut self) {
        for (_, process) in self.leases.drain(..).chain(self.ended.drain(..)) {
            if let Ok((process, _ends)) = process {
                process.leave();
            }
        }
    }
}

impl Leases {
    /// Writes the record of a lease. Call it before the client gets the answer to a request that grants or changes the
    /// lease. A worker outlives the node only once it has its lease, so this gives it to the worker.
    pub(super) async fn write_lease(
        self: &Arc<Self>,
        client: &Client,
        lease: LeaseId,
    ) -> Result<(), Refusal> {
        let _place = client.account.record_place().await;
        let leases = self.clone();
        self.on_disk(move |folder| {
            let (record, is_ending) = leases.change(|state, _| {
                let view = state.table.lease(lease);
                let is_ending = view.is_some_and(|view| view.announced.is_some());
                (leases.record(state, lease), is_ending)
            });
            // `None` if the end of the lease has begun. Its client hears of that.
            let Some(record) = record else { return Ok(()) };
            match is_ending {
                true => folder.write_ending(&record)?,
                false => folder.write_lease(&record)?,
            }
            leases.change(|state, _| {
                if let Some(entry) = state.entries.get_mut(&lease) {
                    entry.is_confirmation_kept = record.is_confirmed;
                }
            });
            Ok(())
        })
        .await
        .map_err(|_| {
            let detail = "the node failed to write its state folder, so it refused the request; ask its operator to free disk space, then try again";
            (Status::Internal, detail.into())
        })
    }

    fn record(&self, state: &mut State, lease: LeaseId) -> Option<LeaseRecord> {
        let kept = state.table.kept(lease)?;
        let entry = state.entries.get_mut(&lease)?;
        let assign = self.assign_of(entry, lease);
        let worker = entry.worker.as_mut()?;
        worker.begin(&assign);
        let worker = worker.for_successor()?;
        let flags = (entry.is_detached, entry.is_confirmed);
        let in_turns = entry.session.as_ref().filter(|_| entry.is_session_exclusive);
        let epoch = in_turns.map(|session| session.epoch);
        Some(LeaseRecord::new(kept, worker, flags, entry.owner, epoch))
    }

    /// Writes that a lease has a session, before the first command of a session that takes turns: the next node lets
    /// others wait for its work.
    pub(in crate::supervisor) async fn keep_session(
        self: &Arc<Self>,
        client: &Client,
        lease: u64,
        session: &Session,
    ) -> Result<(), Refusal> {
        if !session.is_kept() {
            self.write_lease(client, LeaseId(lease)).await?;
            session.set_kept();
        }
        Ok(())
    }

    /// The message that gives a lease to its worker.
    pub(super) fn assign_of(&self, entry: &Entry, lease: LeaseId) -> Assign {
        let limits = cuda_lease::wire::Limits { memory: entry.quota, ..self.limits };
        let trace = entry.traced.as_ref().and_then(|traced| traced.trace);
        Assign { limits, lease: lease.0, trace }
    }

    /// Records that a lease has ended, or that its end was announced. Call it before the client gets the answer to a
    /// request that ends the lease.
    pub(super) async fn write_end(&self, lease: LeaseId) -> io::Result<()> {
        self.on_disk(move |folder| folder.end(lease.0)).await
    }

    /// Removes the record of a lease whose worker has ended, once the audit log has its end. If the node is killed before
    /// that, the next one writes the end.
    pub(super) async fn forget(&self, lease: LeaseId) {
        self.audit.written().await;
        if let Err(error) = self.on_disk(move |folder| folder.forget(lease.0)).await {
            tracing::error!(
                lease = lease.0,
                %error,
                "a lease that has ended stays in the state folder"
            );
        }
    }

    /// Records whether a device is out of service when the folder is free: a later fence or unfence may have come first.
    pub(super) async fn write_fence(self: &Arc<Self>, slot: SlotId) -> io::Result<()> {
        let leases = self.clone();
        self.on_disk(move |folder| {
            let Some(device) = leases.slots.get(slot.0) else { return Ok(()) };
            let is_fenced = leases.change(|state, _| {
                state.table.slots().any(|view| view.id == slot && view.is_fenced)
            });
            folder.set_fenced(&device.info.address, is_fenced)
        })
        .await
    }

    /// Writes to the state folder, if there is one. The write completes even if the caller stops waiting. A failure is
    /// logged.
    async fn on_disk(
        &self,
        write: impl FnOnce(&mut StateFolder) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let Some(folder) = self.folder.clone() else { return Ok(()) };
        let mut folder = folder.lock_owned().await;
        let written = tokio::task::spawn_blocking(move || write(&mut folder)).await;
        written.map_err(io::Error::other).flatten().inspect_err(|error| {
            tracing::error!(%error, "the state folder cannot be written");
        })
    }

    /// Leaves the leases to the next node, if they can outlive this one. Returns whether they can.
    pub(in crate::supervisor) fn outlive_node(&self) -> bool {
        let can_outlive = self.folder.is_some();
        self.has_left.store(can_outlive, Ordering::Release);
        can_outlive
    }

    /// Whether the leases were left to the next node.
    pub(in crate::supervisor) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// Waits until the audit log is written, at most for `limit`.
    pub(in crate::supervisor) fn flush(&self, limit: Duration) {
        self.audit.flush(limit);
    }

    /// Takes over the leases of an earlier node. Each is as its record says, or has ended.
    pub(in crate::supervisor) async fn restore(self: &Arc<Self>, mut left: LeftLeases) {
        let (mut leases, ended) = (mem::take(&mut left.leases), mem::take(&mut left.ended));
        // Leases whose workers have ended come last: their places may belong to later leases by now.
        leases.sort_by_key(|(_, process)| process.is_err());
        let (fenced, first_id) = (mem::take(&mut left.fenced), left.first_id);
        self.change(|state, _| state.table.skip_ids(first_id));
        for (record, process) in ended {
            let worker = self.take_over(&record, process).await;
            self.end_left(record.lease, worker).await;
        }
        for (record, process) in leases {
            let worker = self.take_over(&record, process).await;
            self.restore_one(record, worker).await;
        }
        fenced.iter().for_each(|device| self.fence(device));
        // Clients can connect from now on: the ends of workers may have taken minutes.
        self.change(|state, now| {
            let State { table, entries, .. } = state;
            for (lease, entry) in entries {
                if !(entry.is_detached && entry.is_confirmed) {
                    table.disconnected(now, *lease);
                }
            }
        });
    }

    fn fence(self: &Arc<Self>, device: &str) {
        let slot = self.slots.iter().position(|slot| slot.info.address == device);
        if let Some(slot) = slot {
            self.change(|state, now| state.table.fence(now, SlotId(slot)));
        }
    }

    /// Takes over the worker of a lease, if it has not ended. A device on which that fails is fenced: whether its memory is
    /// free is unknown.
    async fn take_over(
        self: &Arc<Self>,
        record: &LeaseRecord,
        process: process::Result<LeftProcess>,
    ) -> Option<WorkerHandle> {
        let (lease, device) = (record.lease.id, &record.lease.slot);
        let process = match process {
            Ok(process) => process,
            Err(error @ process::Error::Gone { .. }) => {
                tracing::debug!(lease, %error, "the worker of an earlier node has ended");
                return None;
            }
            Err(error) => {
                tracing::error!(lease, %device, %error, "the worker of an earlier node may not have ended");
                self.fence(device);
                return None;
            }
        };
        if let Err(error) = &process.1 {
            tracing::error!(lease, %error, "the worker of an earlier node is killed");
        }
        // If the node no longer serves its device, any slot will do: the worker only has to end.
        let found = self.slots.iter().find(|other| other.info.address == *device);
        let slot = found.or(self.slots.first())?;
        let taken = slot.workers.take_over(process, slot.info.clone(), slot.features).await;
        let taken = taken.inspect_err(|error| {
            tracing::error!(lease, %device, %error, "the worker of an earlier node has unknown memory");
            self.fence(device);
        });
        let mut worker = taken.ok()?;
        if record.protocol != PROTOCOL {
            tracing::error!(
                lease,
                version = record.protocol,
                own = PROTOCOL,
                "the worker of a node of another version is killed"
            );
            (worker.lanes, worker.jobs) = (None, None);
        }
        Some(worker)
    }

    /// Ends a lease that the table does not have. A device whose worker does not end, because the driver holds it, or
    /// whose memory is not free, is fenced: the node starts without it.
    async fn end_left(self: &Arc<Self>, left: KeptLease, worker: Option<WorkerHandle>) {
        let KeptLease { id: lease, slot: device, tenant, .. } = left;
        let leases = self.clone();
        let (sender, mut end) = oneshot::channel();
        let (ending, mut is_ending) = mpsc::channel(1);
        tokio::spawn(async move {
            let memory_is_back = match worker {
                Some(worker) => worker.kill(|| _ = ending.try_send(())).await,
                None => true,
            };
            let (event, tenant) = ("ended", Some(&*tenant));
            let ended = Decision { event, tenant, lease: Some(lease), ..Decision::default() };
            leases.audit.write(&ended);
            _ = sender.send(memory_is_back);
            // The disk may be slow, which is no reason to fence the device.
            leases.forget(LeaseId(lease)).await;
        });
        let is_fenced = self.change(|state, _| {
            state.table.slots().any(|slot| slot.is_fenced && slot.name == device)
        });
        if is_fenced {
            return;
        }
        let until = tokio::time::Instant::now() + LONG_KILL;
        let has_ended = loop {
            tokio::select! {
                memory_is_back = &mut end => break memory_is_back == Ok(true),
                Some(()) = is_ending.recv(), if tokio::time::Instant::now() < until => {}
                () = tokio::time::sleep(KILL) => break false,
            }
        };
        if !has_ended {
            tracing::error!(lease, device, "the worker of a lease of an earlier node does not end");
            self.fence(&device);
        }
    }

    /// Lets other sessions of the device run when a session of an earlier node has completed its work. The node asks the
    /// worker: the client may never come back.
    fn settle(
        self: &Arc<Self>,
        state: &mut State,
        now: Duration,
        lease: LeaseId,
        epoch: Option<u32>,
    ) {
        let State { table, entries, blobs, .. } = state;
        let tenant = table.lease(lease).map(|view| view.tenant.clone());
        let started =
            epoch.zip(entries.get_mut(&lease)).zip(tenant).and_then(|((epoch, entry), tenant)| {
                let blobs = blobs.entry(tenant).or_insert_with_key(|tenant| self.blobs.of(tenant));
                self.start_session(entry, lease, epoch, blobs.clone()).ok()
            });
        match started {
            Some(session) => {
                session.set_kept();
                session.settle();
            }
            None => _ = table.session_idle(now, lease),
        }
    }

    async fn restore_one(self: &Arc<Self>, record: LeaseRecord, worker: Option<WorkerHandle>) {
        let lease = LeaseId(record.lease.id);
        let (quota, elapsed) = (record.lease.quota, record.elapsed());
        // The entry is there before an action concerns it: the lease may end at once.
        let without_place = self.change(|state, now| {
            let restored = state.table.restore(now, record.lease.clone(), elapsed);
            let view = restored.and_then(|lease| state.table.lease(lease));
            let Some(view) = view else { return Some(worker) };
            let slot = view.slot;
            let is_session_exclusive = view.class == cuda_lease::wire::Exclusivity::Session;
            let entry = Entry {
                slot,
                quota,
                is_session_exclusive,
                ready: watch::Sender::new(Some(Ok(()))),
                worker: None,
                starting: None,
                session: None,
                jobs: None,
                meter: Arc::new(Meter::new(self.metrics.clone())),
                traced: None,
                since: now,
                owner: record.owner(),
                is_detached: record.is_detached,
                is_confirmed: record.is_confirmed,
                is_confirmation_kept: record.is_confirmed,
                connections: FxHashSet::default(),
                cause: None,
                memory_used: None,
            };
            let entry = state.entries.entry(lease).insert_entry(entry).into_mut();
            match worker {
                Some(worker) if worker.lanes.is_some() => {
                    tracing::info!(
                        lease = lease.0,
                        pid = worker.pid(),
                        "a lease of an earlier node goes on"
                    );
                    entry.worker = Some(worker);
                    self.settle(state, now, lease, record.epoch);
                }
                worker => {
                    tracing::warn!(
                        lease = lease.0,
                        "a lease of an earlier node ends, because its worker has ended or cannot be used"
                    );
                    // It has its place until its end.
                    entry.worker = worker;
                    state.table.worker_died(now, lease, None);
                }
            }
            None
        });
        if let Some(worker) = without_place {
            tracing::error!(
                lease = lease.0,
                device = record.lease.slot,
                "a lease of an earlier node has no place on this one, and ends"
            );
            self.end_left(record.lease, worker).await;
        }
    }
}
