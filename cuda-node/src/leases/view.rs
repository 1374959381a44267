//! Descriptions of leases and slots for status pages.

use std::time::Duration;

use crate::quotas::Tenant;

use super::{
    ids::{LeaseId, SlotId},
    lease::{Cause, LeaseState},
    request::Exclusivity,
};

/// A lease at the time of the last call to the table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseView<'a> {
    /// The lease.
    pub id: LeaseId,
    /// Its tenant.
    pub tenant: &'a Tenant,
    /// Its slot.
    pub slot: SlotId,
    /// The name of its slot.
    pub slot_name: &'a str,
    /// The memory that the client may allocate, in bytes.
    pub quota: u64,
    /// The memory that the slot is charged with, in bytes: quota and reserve.
    pub charge: u64,
    /// The class of the lease.
    pub class: Exclusivity,
    /// The priority of its request.
    pub priority: i32,
    /// Its state.
    pub state: LeaseState,
    /// The cause of its end, once the end has begun.
    pub cause: Option<&'a Cause>,
    /// The time until it expires; `None` once its end has begun.
    pub remaining: Option<Duration>,
    /// Its generation.
    pub generation: u64,
    /// Whether its end was announced.
    pub has_announced_end: bool,
    /// Whether its client is connected.
    pub is_connected: bool,
    /// Whether its session has the turn. Always `false` for shared and device leases.
    pub is_running: bool,
}

/// A slot at the time of the last call to the table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotView<'a> {
    /// The slot.
    pub id: SlotId,
    /// Its name.
    pub name: &'a str,
    /// The memory that leases may use, in bytes.
    pub capacity: u64,
    /// The memory that is charged, in bytes. Includes ended leases of a fenced slot whose memory is not verified to be
    /// back.
    pub used: u64,
    /// The number of leases.
    pub leases: usize,
    /// The number of leases that it may have.
    pub max_leases: u32,
    /// Whether it is out of service.
    pub is_fenced: bool,
    /// The number of waiting requests that accept this slot.
    pub queued: usize,
}
