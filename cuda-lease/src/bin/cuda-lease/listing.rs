//! Devices and leases of a node, as tables and as JSON.

use command_line::Failure;
use cuda_lease::{DeviceEntry, Exclusivity, LeaseEntry, NodeClient};
use indicatif::HumanBytes;
use serde_json::{Value, json};

use crate::table;

/// The devices of a node, and the leases of the tenant that asks.
pub(crate) struct Listing {
    devices: Vec<DeviceEntry>,
    leases: Vec<LeaseEntry>,
}

impl Listing {
    /// Asks the node.
    pub(crate) fn of(client: &NodeClient) -> Result<Self, Failure> {
        let (devices, leases) = (client.inventory()?, client.leases()?);
        Ok(Self { devices, leases })
    }

    /// The lines of the table of devices.
    pub(crate) fn device_lines(&self) -> Vec<String> {
        let head = ["DEVICE", "NAME", "MEMORY", "FREE", "LEASES", "STATE"];
        let row = |device: &DeviceEntry| {
            vec![
                device.info.address.clone(),
                device.info.name.clone(),
                HumanBytes(device.capacity).to_string(),
                HumanBytes(device.free).to_string(),
                format!("{}/{}", device.leases, device.max_leases),
                if device.fenced { "fenced" } else { "ok" }.to_owned(),
            ]
        };
        lines(&head, self.devices.iter().map(row))
    }

    /// The lines of the table of leases.
    pub(crate) fn lease_lines(&self) -> Vec<String> {
        let head = ["LEASE", "DEVICE", "MEMORY", "CLASS", "EXPIRES", "STATE"];
        let row = |lease: &LeaseEntry| {
            vec![
                lease.lease.to_string(),
                lease.device.clone(),
                HumanBytes(lease.memory).to_string(),
                class(lease.exclusivity).to_owned(),
                format!("{} s", lease.expires_in_ms.div_ceil(1000)),
                state(lease).to_owned(),
            ]
        };
        lines(&head, self.leases.iter().map(row))
    }

    pub(crate) fn devices_json(&self) -> Value {
        let device = |device: &DeviceEntry| {
            let info = &device.info;
            json!({
                "device": info.address,
                "name": info.name,
                "memory": device.capacity,
                "free": device.free,
                "leases": device.leases,
                "max_leases": device.max_leases,
                "fenced": device.fenced,
                "compute_capability": [info.compute_capability.0, info.compute_capability.1],
                "multiprocessors": info.multiprocessors,
            })
        };
        self.devices.iter().map(device).collect()
    }

    pub(crate) fn leases_json(&self) -> Value {
        let lease = |lease: &LeaseEntry| {
            json!({
                "lease": lease.lease,
                "device": lease.device,
                "memory": lease.memory,
                "class": class(lease.exclusivity),
                "expires_in_ms": lease.expires_in_ms,
                "state": state(lease),
            })
        };
        self.leases.iter().map(lease).collect()
    }
}

fn lines(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let head = head.iter().map(|&title| title.to_owned()).collect();
    table::lines(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

fn class(exclusivity: Exclusivity) -> &'static str {
    match exclusivity {
        Exclusivity::Shared => "shared",
        Exclusivity::Session => "session",
        Exclusivity::Device => "device",
    }
}

fn state(lease: &LeaseEntry) -> &'static str {
    match (lease.ending, lease.connected) {
        (true, _) => "ending",
        (false, true) => "active",
        (false, false) => "disconnected",
    }
}
