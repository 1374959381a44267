//! Lists devices and leases.

use std::sync::Arc;

use cuda_lease::wire::{DeviceEntry, InventoryReply, LeaseEntry};

use super::{Client, Leases, millis};
use crate::leases::{LeaseView, SlotView};

impl Leases {
    /// Lists the devices, and the leases of the client's tenant.
    pub(in super::super) fn inventory(self: &Arc<Self>, client: &Client) -> InventoryReply {
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

fn lease_entry(view: &LeaseView<'_>) -> LeaseEntry {
    LeaseEntry {
        lease: view.id.0,
        device: view.slot_name.to_owned(),
        memory: view.quota,
        exclusivity: view.class,
        expires_in_ms: view.remaining.map_or(0, millis),
        connected: view.is_connected,
        ending: view.remaining.is_none() || view.has_announced_end,
    }
}
