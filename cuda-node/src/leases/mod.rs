//! The lease table of a node: admission, queuing, time limits, scheduling of sessions and the end of leases.
//!
//! The table is a pure state machine: no clock, no network, no threads, no files. It may use `quotas` and
//! `cuda_lease::wire::Status`. The node's supervisor owns one [`LeaseTable`], reports what happens by its methods, and
//! performs the [`Action`]s that it polls. A call arrives in `table/`, which schedules sessions and lists the state:
//! `admission` checks requests and places them on slots, and `life` moves a lease from grant to end. The files beside
//! `table/` are the data that it uses.
//!
//! # Time
//! Every method takes `now`, the time since the node started. A `now` before an earlier one counts as the earlier one.
//! The grace, the notice period of a revocation, the timeouts of worker starts and kills, and the time slice of a
//! session start when [`poll`](LeaseTable::poll) returns the action that starts them. A clock jump therefore skips no
//! state of a lease, and the supervisor always has the full duration to act.
//!
//! # The life of a lease
//!
//! | state | entered by | left by |
//! |---|---|---|
//! | `Granted` | `request`, or capacity for a queued request | the supervisor polls [`Action::AssignWorker`] |
//! | `Starting` | the poll of `AssignWorker` | `worker_ready`; `worker_not_started`, or no answer within `start_timeout`, ends the lease |
//! | `Active` | `worker_ready`; the duration of the lease starts | any [`Cause`] |
//! | `Draining` | [`Action::StopAdmission`] | the grace is over, or a cause without grace |
//! | `Killing` | [`Action::KillWorker`] | `worker_gone` with the memory free; otherwise the slot is fenced |
//!
//! A lease counts on its slot until its end, so memory is never granted twice.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use cuda_node::{
//!     leases::{Action, LeaseRequest, LeaseTable, Placement, SlotConfig, TableConfig},
//!     quotas::{Quotas, Tenant},
//! };
//!
//! let slot = SlotConfig { name: "cuda:0".into(), capacity: 8 << 30, reserve: 652 << 20, max_leases: 4 };
//! let mut table = LeaseTable::new(TableConfig::default(), vec![slot], Quotas::default())?;
//! let at = Duration::from_secs;
//!
//! let request = LeaseRequest::new(Tenant::new("alice")?, [1; 16], 1 << 30);
//! let Ok(Placement::Leased(lease)) = table.request(at(0), request) else { panic!("no capacity") };
//! assert!(matches!(table.poll(at(0)), Some(Action::AssignWorker { quota, .. }) if quota == 1 << 30));
//! table.worker_ready(at(1), lease);
//!
//! table.free(at(5), lease)?;
//! assert!(matches!(table.poll(at(5)), Some(Action::StopAdmission { .. })));
//! assert_eq!(table.poll(at(5)), Some(Action::KillWorker { lease }));
//! table.worker_gone(at(6), lease, true);
//! assert_eq!(table.leases().count(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod config;
mod lease;
mod output;
mod request;
mod reservations;
mod sessions;
mod slot;
mod table;

#[cfg(test)]
mod tests;

pub use config::{ConfigError, SlotConfig, TableConfig};
pub use lease::{Cause, LeaseState};
pub use output::{Action, Counters, LeaseView, SlotView};
pub use request::{
    Exclusivity, LeaseId, LeaseRequest, Placement, Refusal, Renewal, RequestId, SlotId,
};
pub use table::{KeptLease, LeaseTable};
