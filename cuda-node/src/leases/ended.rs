//! The last leases that ended, for requests that repeat or name them.

use std::collections::VecDeque;

use crate::quotas::Tenant;

use super::{ids::LeaseId, lease::Cause};

#[derive(Debug)]
struct Ended {
    lease: LeaseId,
    tenant: Tenant,
    nonce: [u8; 16],
    cause: Cause,
}

/// A bounded history. A lookup reads all of it, and only requests that match no present lease look something up.
#[derive(Debug, Default)]
pub(super) struct EndedLeases {
    last: VecDeque<Ended>,
}

impl EndedLeases {
    pub(super) fn add(
        &mut self,
        lease: LeaseId,
        tenant: Tenant,
        nonce: [u8; 16],
        cause: Cause,
        limit: usize,
    ) {
        self.last.push_back(Ended { lease, tenant, nonce, cause });
        while self.last.len() > limit {
            self.last.pop_front();
        }
    }

    pub(super) fn of_lease(&self, lease: LeaseId) -> Option<&Cause> {
        self.last.iter().find(|ended| ended.lease == lease).map(|ended| &ended.cause)
    }

    pub(super) fn of_nonce(&self, tenant: &Tenant, nonce: &[u8; 16]) -> Option<(LeaseId, &Cause)> {
        let of = |ended: &&Ended| ended.nonce == *nonce && ended.tenant == *tenant;
        self.last.iter().find(of).map(|ended| (ended.lease, &ended.cause))
    }
}
