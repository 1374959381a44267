//! Tests of the table: one file a behavior, and random programs in `properties`.

mod admission;
mod life;
mod preemption;
mod properties;
mod queuing;
mod repetition;
mod sessions;
mod workers;

use std::time::Duration;

use cuda_lease::wire::Status;

use crate::quotas::{Quotas, Tenant};

use super::*;

const MIB: u64 = 1 << 20;

/// A table, and a supervisor in place of workers.
struct Node {
    table: LeaseTable,
    nonces: u8,
}

fn at(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A slot of 1000 MiB with a reserve of 100 MiB for up to 4 leases.
fn gpu(name: &str) -> SlotConfig {
    SlotConfig { name: name.into(), capacity: 1000 * MIB, reserve: 100 * MIB, max_leases: 4 }
}

impl Node {
    fn new(slots: usize) -> Node {
        Node::with(slots, TableConfig::default())
    }

    fn with(slots: usize, config: TableConfig) -> Node {
        let slots = (0..slots).map(|index| gpu(&format!("cuda:{index}"))).collect();
        let table = LeaseTable::new(config, slots, Quotas::default()).unwrap();
        Node { table, nonces: 0 }
    }

    /// A request for this many MiB with a new nonce.
    fn ask(&mut self, mib: u64) -> LeaseRequest {
        self.nonces += 1;
        LeaseRequest::new(Tenant::new("alice").unwrap(), [self.nonces; 16], mib * MIB)
    }

    /// A lease of this many MiB.
    fn lease(&mut self, now: u64, mib: u64) -> LeaseId {
        let request = self.ask(mib);
        self.lease_of(now, request)
    }

    fn lease_of(&mut self, now: u64, request: LeaseRequest) -> LeaseId {
        match self.table.request(at(now), request) {
            Ok(Placement::Leased(lease)) => lease,
            other => panic!("no lease: {other:?}"),
        }
    }

    fn active(&mut self, now: u64, mib: u64) -> LeaseId {
        let request = self.ask(mib);
        self.active_of(now, request)
    }

    fn active_of(&mut self, now: u64, request: LeaseRequest) -> LeaseId {
        let lease = self.lease_of(now, request);
        self.actions(now);
        assert!(self.table.worker_ready(at(now), lease));
        lease
    }

    fn queued(&mut self, now: u64, request: LeaseRequest) -> RequestId {
        match self.table.request(at(now), request) {
            Ok(Placement::Queued { request, .. }) => request,
            other => panic!("not queued: {other:?}"),
        }
    }

    fn refused(&mut self, now: u64, request: LeaseRequest) -> Refusal {
        self.table.request(at(now), request).unwrap_err()
    }

    fn actions(&mut self, now: u64) -> Vec<Action> {
        std::iter::from_fn(|| self.table.poll(at(now))).collect()
    }

    /// Ends a lease completely. Returns the actions that follow its end.
    fn end(&mut self, now: u64, lease: LeaseId) -> Vec<Action> {
        self.table.free(at(now), lease).unwrap();
        assert!(self.actions(now).contains(&Action::KillWorker { lease }));
        assert!(self.table.worker_gone(at(now), lease, true));
        self.actions(now)
    }

    fn state(&self, lease: LeaseId) -> Option<LeaseState> {
        self.table.lease(lease).map(|view| view.state)
    }

    fn used(&self, slot: usize) -> u64 {
        self.table.slots().nth(slot).unwrap().used
    }
}

/// The lease that this queued request was admitted to.
fn admitted(actions: &[Action], of: RequestId) -> Option<LeaseId> {
    actions.iter().find_map(|action| match action {
        Action::Admitted { request, lease } if *request == of => Some(*lease),
        _ => None,
    })
}
