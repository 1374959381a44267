//! Limits of the table and of its slots.

use std::time::Duration;

use thiserror::Error;

/// A device, or a part of one, that the node leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotConfig {
    /// The name in requests: `cpu`, `cuda:0`, or the UUID of a MIG instance. Unique on the node.
    pub name: String,
    /// The memory that leases may use, in bytes, reserves included.
    pub capacity: u64,
    /// The memory that a worker uses besides the quota of its lease, in bytes. About 652 MiB on an H200: 588 MiB for the
    /// CUDA context, and 64 MiB for small variables of modules, the heap and the print buffer of the device. 0 on a CPU.
    pub reserve: u64,
    /// The maximum number of leases at a time.
    pub max_leases: u32,
}

/// The limits of a [`LeaseTable`](super::LeaseTable).
///
/// The state of a table is bounded: `max_leases` of all slots, `queue_limit` requests, `ended_limit` ended leases, and
/// 1,024 tenants that have reserved slots, each below 1 KiB plus the names in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableConfig {
    /// The maximum duration of one request or renewal, in seconds. Default: one hour.
    pub max_lease_secs: u32,
    /// The duration of a lease whose request states 0 seconds. Default: 60 s.
    pub default_lease_secs: u32,
    /// The maximum duration of a lease with all its renewals, in seconds. Default: no limit.
    pub max_total_secs: Option<u64>,
    /// The maximum number of requests that wait. Default: 64.
    pub queue_limit: usize,
    /// The maximum wait of a request. A longer one is shortened to it. Default: 10 minutes.
    pub max_wait: Duration,
    /// The maximum time for which a waiting request reserves a device that has free capacity for other requests, from
    /// its arrival. Then it waits without a reservation. Also the time for which all requests of a tenant together reserve
    /// a device. Then the tenant does not reserve that device for four times as long. Requests that preempt are not
    /// counted, and may do so in any case. Default: 60 s.
    pub max_reservation: Duration,
    /// The time between [`StopAdmission`](super::Action::StopAdmission) and
    /// [`KillWorker`](super::Action::KillWorker), in which work in flight completes. Default: 5 s.
    pub grace: Duration,
    /// The maximum duration for which a lease outlives the connection of its client. Default: 10 s.
    pub reconnect_window: Duration,
    /// The maximum duration of a worker's start. Default: 30 s.
    pub start_timeout: Duration,
    /// The maximum duration from [`KillWorker`](super::Action::KillWorker) to
    /// [`worker_gone`](super::LeaseTable::worker_gone), without a [report](super::LeaseTable::worker_ends) that the end
    /// goes on. Then the slot is fenced. Default: 30 s.
    pub kill_timeout: Duration,
    /// The time for which the previous generation of a lease stays valid after a renewal. Default: 30 s.
    pub generation_overlap: Duration,
    /// The time that a session runs before another session of the slot that waits runs. Default: 200 ms.
    pub time_slice: Duration,
    /// Whether a waiting request may end leases of lower priority. Default: no.
    pub preempt: bool,
    /// The notice period of a lease that is preempted by a request of higher priority. Default: 10 s.
    pub preempt_notice: Duration,
    /// The number of ended leases whose nonce and cause are remembered. A request that is repeated later than that
    /// is a new request. Default: 1024.
    pub ended_limit: usize,
}

impl Default for TableConfig {
    fn default() -> Self {
        TableConfig {
            max_lease_secs: 3600,
            default_lease_secs: 60,
            max_total_secs: None,
            queue_limit: 64,
            max_wait: Duration::from_secs(600),
            max_reservation: Duration::from_secs(60),
            grace: Duration::from_secs(5),
            reconnect_window: Duration::from_secs(10),
            start_timeout: Duration::from_secs(30),
            kill_timeout: Duration::from_secs(30),
            generation_overlap: Duration::from_secs(30),
            time_slice: Duration::from_millis(200),
            preempt: false,
            preempt_notice: Duration::from_secs(10),
            ended_limit: 1024,
        }
    }
}

/// The configuration contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no slot.
    #[error("no device is configured; configure at least one")]
    NoSlots,
    /// Two slots have one name.
    #[error("two devices have the name {0:?}; give each device its own name")]
    DuplicateSlot(String),
    /// A slot can hold no lease.
    #[error(
        "device {name:?} can hold no lease: capacity {capacity} bytes, reserve {reserve} bytes, max_leases \
         {max_leases}; the capacity must exceed the reserve, and max_leases must be at least 1"
    )]
    NoRoom {
        /// The name of the slot.
        name: String,
        /// Its capacity in bytes.
        capacity: u64,
        /// Its reserve per worker in bytes.
        reserve: u64,
        /// Its number of leases.
        max_leases: u32,
    },
    /// A time limit is 0 or contradicts another one.
    #[error("{name} is {value:?}; {expectation}")]
    Time {
        /// The field of [`TableConfig`].
        name: &'static str,
        /// Its value.
        value: Duration,
        /// The values that are valid.
        expectation: &'static str,
    },
}

impl TableConfig {
    pub(super) fn check(&self, slots: &[SlotConfig]) -> Result<(), ConfigError> {
        if slots.is_empty() {
            return Err(ConfigError::NoSlots);
        }
        for (index, slot) in slots.iter().enumerate() {
            if slots.iter().take(index).any(|other| other.name == slot.name) {
                return Err(ConfigError::DuplicateSlot(slot.name.clone()));
            }
            if slot.capacity <= slot.reserve || slot.max_leases == 0 {
                let SlotConfig { name, capacity, reserve, max_leases } = slot.clone();
                return Err(ConfigError::NoRoom { name, capacity, reserve, max_leases });
            }
        }
        let positive = "it must be longer than 0";
        for (name, value) in [
            ("default_lease_secs", Duration::from_secs(self.default_lease_secs.into())),
            ("max_total_secs", Duration::from_secs(self.max_total_secs.unwrap_or(u64::MAX))),
            ("start_timeout", self.start_timeout),
            ("kill_timeout", self.kill_timeout),
            ("time_slice", self.time_slice),
        ] {
            if value.is_zero() {
                return Err(ConfigError::Time { name, value, expectation: positive });
            }
        }
        if self.max_lease_secs < self.default_lease_secs {
            return Err(ConfigError::Time {
                name: "max_lease_secs",
                value: Duration::from_secs(self.max_lease_secs.into()),
                expectation: "it must be at least default_lease_secs",
            });
        }
        Ok(())
    }
}
