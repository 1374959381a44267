//! The parts of a lease that stateless submits and blobs use.

use std::sync::Arc;

use cuda_core::protocol::Status;

use super::{Client, LeaseId, Leases, unknown};
use crate::supervisor::{blobs::Blobs, jobs::Jobs, sessions::session::Session, streams::Refusal};

impl Leases {
    /// Returns the queue of a lease's stateless submits and the blobs of its tenant. The lease needs no session. The
    /// first call starts the queue.
    pub(in crate::supervisor) fn jobs(
        self: &Arc<Self>,
        client: &Client,
        lease: u64,
        token: &[u8],
    ) -> Result<(Arc<Jobs>, Arc<Blobs>), Refusal> {
        self.access(client, lease, token, |entry, blobs| {
            if entry.is_session_exclusive {
                let detail =
                    "a lease of the class `session` runs no stateless submits; use its session, or acquire a lease of another class";
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
                    leases.change(|state, now| state.table.worker_died(now, LeaseId(lease)));
                }
            };
            let jobs = entry.jobs.insert(Jobs::start(socket, entry.meter.clone(), ended));
            Ok((jobs.clone(), blobs))
        })
    }

    /// Counts a stateless submit whose image the node has.
    ///
    /// # Errors
    /// The tenant has submitted too much within the last second.
    pub(in crate::supervisor) fn admit_submit(
        self: &Arc<Self>,
        client: &Client,
    ) -> Result<(), Refusal> {
        self.change(|state, _| {
            let limit = state.table.quotas().of(&client.tenant).submits_per_second;
            if state.rates.admit(&client.tenant, limit) {
                return Ok(());
            }
            let tenant = &client.tenant;
            let detail = format!(
                "tenant {tenant} has reached its limit (submits_per_second = {limit}); submit later"
            );
            Err((if limit == 0 { Status::TooLarge } else { Status::QuotaExceeded }, detail))
        })
    }

    /// Returns the blobs of a lease's tenant, and the session of the lease if it has one.
    pub(in crate::supervisor) fn blobs(
        self: &Arc<Self>,
        client: &Client,
        lease: u64,
        token: &[u8],
    ) -> Result<(Arc<Blobs>, Option<Arc<Session>>), Refusal> {
        self.access(client, lease, token, |entry, blobs| Ok((blobs, entry.session.clone())))
    }

    /// The maximum number of bytes of a blob.
    pub(in crate::supervisor) fn blob_limit(&self) -> u64 {
        self.limits.module_bytes
    }
}
