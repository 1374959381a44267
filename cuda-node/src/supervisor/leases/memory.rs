//! Observes the memory of workers.
//!
//! A worker checks allocations against the quota of its lease. Variables of modules, stacks of kernels, and the heap
//! and the print buffer of the device do not pass that check: the driver allocates them. So the supervisor asks NVML
//! how much each worker uses.

use std::{sync::Arc, time::Duration};

use super::Leases;

/// The time between two looks at the memory of all workers.
const INTERVAL: Duration = Duration::from_millis(250);

impl Leases {
    /// Reports the memory of workers to the table, until the node ends.
    pub(in crate::supervisor) async fn watch_memory(self: Arc<Self>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
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
}
