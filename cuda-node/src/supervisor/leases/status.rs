//! Describes devices and leases: for metrics and the status page, and for clients that ask for an inventory.

use std::{sync::Arc, time::Duration};

use cuda_lease::wire::{DeviceEntry, InventoryReply, LeaseEntry};

use super::{Client, Leases, State, millis};
use crate::{
    leases::{Counters, LeaseState, LeaseView, SlotView},
    metrics::{DeviceStatus, LeaseStatus, Snapshot, TenantStatus, Totals, status_label},
};

impl Leases {
    /// Returns the state of the node.
    pub(in crate::supervisor) fn snapshot(self: &Arc<Self>) -> Snapshot {
        let ((mut snapshot, counters), _) = self.with(|state, now| {
            let table = &state.table;
            let snapshot = Snapshot {
                uptime_ms: millis(now),
                devices: table.slots().map(|view| self.device_status(&view)).collect(),
                leases: table.leases().map(|view| state.lease_status(&view, now)).collect(),
                tenants: state.tenants(),
                queue: table.queue_len(),
                sessions: state.entries.values().filter(|entry| entry.session.is_some()).count(),
                ..Snapshot::default()
            };
            (snapshot, table.counters().clone())
        });
        let latencies = self.metrics.latencies();
        (snapshot.totals, snapshot.connections) = self.totals(&counters);
        snapshot.latency = latencies.summaries();
        snapshot.latencies = latencies;
        snapshot
    }

    fn device_status(&self, view: &SlotView<'_>) -> DeviceStatus {
        let slot = self.slots.get(view.id.0);
        DeviceStatus {
            name: view.name.to_owned(),
            model: slot.map(|slot| slot.info.name.clone()).unwrap_or_default(),
            capacity: view.capacity,
            allocated: view.used,
            leases: view.leases,
            max_leases: view.max_leases,
            spares: slot.map(|slot| slot.workers.spares()).unwrap_or_default(),
            fenced: view.is_fenced,
            sandbox: slot.and_then(|slot| slot.sandbox.clone()),
        }
    }

    /// The totals, and the number of open connections.
    fn totals(&self, counters: &Counters) -> (Totals, u64) {
        let (metrics, traffic) = (&self.metrics, self.metrics.traffic());
        let (connections, open) = metrics.connections();
        let ended = [
            ("freed", counters.freed),
            ("expired", counters.expired),
            ("revoked", counters.revoked),
            ("preempted", counters.preempted),
            ("start_timed_out", counters.start_timed_out),
            ("not_started", counters.not_started),
            ("worker_died", counters.workers_died),
            ("disconnected", counters.disconnected),
            ("over_memory", counters.over_memory),
            ("out_of_host_memory", counters.out_of_host_memory),
            ("fenced", counters.fenced),
            ("no_place", counters.no_place),
        ];
        let by_label = |(status, count): (&_, &u64)| (status_label(*status), *count);
        let totals = Totals {
            acquired: counters.granted,
            ended: ended.into(),
            refused: counters.refused.iter().map(by_label).collect(),
            renewed: counters.renewed,
            connections,
            resumed: metrics.resumptions(),
            operations: traffic.operations(),
            failed: traffic.failed(),
            faults: traffic.faults(),
            uploaded_bytes: traffic.uploaded(),
            output_bytes: traffic.output(),
            submits: metrics.submits().iter().map(by_label).collect(),
        };
        (totals, open)
    }

    /// Lists the devices, and the leases of the client's tenant.
    pub(in crate::supervisor) fn inventory(self: &Arc<Self>, client: &Client) -> InventoryReply {
        self.change(|state, _| {
            let own = state.table.leases().filter(|view| *view.tenant == client.tenant);
            let leases: Vec<_> = own.map(|view| lease_entry(&view)).collect();
            InventoryReply {
                devices: state.table.slots().filter_map(|view| self.device_entry(&view)).collect(),
                leases: (!leases.is_empty()).then_some(leases),
            }
        })
    }

    fn device_entry(&self, view: &SlotView<'_>) -> Option<DeviceEntry> {
        Some(DeviceEntry {
            info: self.slots.get(view.id.0)?.info.clone(),
            capacity: view.capacity,
            free: view.capacity.saturating_sub(view.used),
            leases: u32::try_from(view.leases).unwrap_or(u32::MAX),
            max_leases: view.max_leases,
            fenced: view.is_fenced,
        })
    }
}

impl State {
    fn lease_status(&self, view: &LeaseView<'_>, now: Duration) -> LeaseStatus {
        // A lease whose worker is being killed has no entry any more.
        let entry = self.entries.get(&view.id);
        let mut status = LeaseStatus {
            id: view.id.0,
            tenant: view.tenant.to_string(),
            device: view.slot_name.to_owned(),
            class: view.class.name(),
            state: state(view.state),
            cause: view.cause.map(ToString::to_string),
            memory: view.quota,
            left_ms: view.remaining.map(millis),
            connected: view.is_connected,
            ..LeaseStatus::default()
        };
        if let Some(entry) = entry {
            let traffic = entry.meter.lease();
            status.age_ms = millis(now.saturating_sub(entry.since));
            status.memory_used = entry.meter.memory();
            status.operations = traffic.operations().iter().sum();
            status.uploaded_bytes = traffic.uploaded();
            status.output_bytes = traffic.output();
            (status.backlog, status.backlog_bytes) = entry.meter.backlog();
        }
        status
    }

    /// The leases of each tenant that the quotas name, and of all others together.
    fn tenants(&self) -> Vec<TenantStatus> {
        let table = &self.table;
        let mut tenants: Vec<_> = table.quotas().tenants().map(ToString::to_string).collect();
        tenants.sort_unstable();
        tenants.push(String::new());
        let status = |name: String| TenantStatus { name, ..TenantStatus::default() };
        let mut tenants: Vec<_> = tenants.into_iter().map(status).collect();
        for lease in table.leases() {
            let name = lease.tenant.to_string();
            let of =
                tenants.iter().position(|tenant| tenant.name == name).unwrap_or(tenants.len() - 1);
            tenants[of].leases += 1;
            tenants[of].memory += lease.quota;
            let (backlog, bytes) =
                self.entries.get(&lease.id).map_or((0, 0), |entry| entry.meter.backlog());
            // The numbers of a hostile worker.
            tenants[of].backlog = tenants[of].backlog.saturating_add(backlog);
            tenants[of].backlog_bytes = tenants[of].backlog_bytes.saturating_add(bytes);
        }
        tenants
    }
}

fn state(state: LeaseState) -> &'static str {
    match state {
        LeaseState::Granted => "granted",
        LeaseState::Starting => "starting",
        LeaseState::Active => "active",
        LeaseState::Draining => "draining",
        LeaseState::Killing => "killing",
    }
}

fn lease_entry(view: &LeaseView<'_>) -> LeaseEntry {
    LeaseEntry {
        lease: view.id.0,
        device: view.slot_name.to_owned(),
        memory: view.quota,
        exclusivity: view.class,
        expires_in_ms: view.remaining.map_or(0, millis),
        connected: view.is_connected,
        ending: view.remaining.is_none() || view.announced.is_some(),
    }
}
