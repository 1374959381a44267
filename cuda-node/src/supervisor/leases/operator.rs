//! The commands of the operator.

use std::{sync::Arc, time::Duration};

use cuda_core::protocol::Status;

use super::{Decision, LeaseId, Leases, refusal};
use crate::{leases::SlotId, supervisor::streams::Refusal};

impl Leases {
    /// Ends a lease after a notice period.
    ///
    /// # Errors
    /// There is no such lease, or its end has begun.
    pub(in crate::supervisor) fn revoke(
        self: &Arc<Self>,
        lease: u64,
        reason: String,
        notice: Duration,
    ) -> Result<(), Refusal> {
        let why = Some(reason.clone());
        self.change(|state, now| state.table.revoke(now, LeaseId(lease), reason, notice)).map_err(
            |refused| {
                let (status, detail) = refusal(refused);
                // The rest is advice for a client.
                let fact = detail.split_once("; ").map_or(&*detail, |(fact, _)| fact);
                (status, format!("{fact}; the status page and the audit log have the leases"))
            },
        )?;
        let (event, lease) = ("revoked", Some(lease));
        self.audit.write(&Decision { event, lease, reason: why, ..Decision::default() });
        Ok(())
    }

    /// Puts a device back into service. Returns whether it was fenced.
    ///
    /// # Errors
    /// There is no such device.
    pub(in crate::supervisor) fn unfence(self: &Arc<Self>, device: &str) -> Result<bool, Refusal> {
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
        let (event, device) = ("unfenced", Some(device));
        self.audit.write(&Decision { event, device, ..Decision::default() });
        Ok(was_fenced)
    }
}
