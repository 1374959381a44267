//! The time for which tenants have reserved slots.
//!
//! Without it, a tenant would reserve a slot for as long as it likes: it withdraws its request before the reservation
//! is over, and sends another one.

use std::time::Duration;

use super::request::SlotId;
use crate::quotas::Tenant;

/// The rest of a tenant after its reservations of a slot, in units of the limit.
const REST: u32 = 4;

/// The maximum number of entries. Beyond it, the one that would be forgotten first is.
const ENTRIES: usize = 1024;

/// The time that one tenant has reserved one slot.
#[derive(Debug)]
struct Entry {
    tenant: Tenant,
    slot: SlotId,
    /// The time of its earlier reservations.
    used: Duration,
    /// The start of its present reservation.
    since: Option<Duration>,
    /// The end of the rest, which begins with the end of the last reservation.
    forgotten_at: Duration,
}

impl Entry {
    fn stop(&mut self, at: Duration, rest: Duration) {
        if let Some(since) = self.since.take() {
            self.used = self.used.saturating_add(at.saturating_sub(since));
            self.forgotten_at = at.saturating_add(rest);
        }
    }
}

/// The reservations of all tenants. Each tenant reserves a slot for a limited time, in one or several requests. Then it
/// does not reserve it for [`REST`] times as long.
#[derive(Debug)]
pub(super) struct Reservations {
    limit: Duration,
    entries: Vec<Entry>,
}

impl Reservations {
    pub(super) fn new(limit: Duration) -> Reservations {
        Reservations { limit, entries: Vec::new() }
    }

    fn rest(&self) -> Duration {
        self.limit.saturating_mul(REST)
    }

    /// The end of the reservation that the tenant has, or would begin now. `None` if it may not reserve the slot.
    pub(super) fn end_of(&self, now: Duration, tenant: &Tenant, slot: SlotId) -> Option<Duration> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.slot == slot && entry.tenant == *tenant);
        let (used, since) = entry.map_or((Duration::ZERO, None), |entry| (entry.used, entry.since));
        let left = self.limit.checked_sub(used).filter(|left| !left.is_zero())?;
        Some(since.unwrap_or(now).saturating_add(left))
    }

    /// Replaces the reservations that tenants have now.
    pub(super) fn replace(&mut self, now: Duration, reserved: Vec<(Tenant, SlotId)>) {
        let rest = self.rest();
        for entry in &mut self.entries {
            entry.stop(now, rest);
        }
        for (tenant, slot) in reserved {
            let mut entries = self.entries.iter_mut();
            match entries.find(|entry| entry.slot == slot && entry.tenant == tenant) {
                Some(entry) => entry.since = Some(now),
                None => {
                    let (used, since, forgotten_at) = (Duration::ZERO, Some(now), Duration::MAX);
                    self.entries.push(Entry { tenant, slot, used, since, forgotten_at });
                }
            }
        }
        self.forget(now);
        while self.entries.len() > ENTRIES {
            let ended = self.entries.iter().enumerate().filter(|(_, entry)| entry.since.is_none());
            let Some((first, _)) = ended.min_by_key(|(_, entry)| entry.forgotten_at) else {
                return;
            };
            self.entries.swap_remove(first);
        }
    }

    /// Ends the reservations whose tenants have reached the limit, and the rests that are over. Returns whether there
    /// were any.
    pub(super) fn advance(&mut self, now: Duration) -> bool {
        let (limit, rest) = (self.limit, self.rest());
        let mut any = false;
        for entry in &mut self.entries {
            let Some(since) = entry.since else { continue };
            let end = since.saturating_add(limit.saturating_sub(entry.used));
            if end <= now {
                entry.stop(end, rest);
                any = true;
            }
        }
        any | self.forget(now)
    }

    fn forget(&mut self, now: Duration) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.since.is_some() || entry.forgotten_at > now);
        self.entries.len() < before
    }

    /// The time of the first end of a reservation.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let ends = self.entries.iter().filter_map(|entry| {
            Some(entry.since?.saturating_add(self.limit.saturating_sub(entry.used)))
        });
        ends.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_reservations_is_bounded() {
        let mut reservations = Reservations::new(Duration::from_secs(60));
        let at = |index: usize| Duration::from_millis(u64::try_from(index).unwrap());
        let tenant = |index: usize| Tenant::new(&format!("tenant-{index}")).unwrap();
        for index in 0..=2 * ENTRIES {
            reservations.replace(at(index), vec![(tenant(index), SlotId(0))]);
            assert!(reservations.entries.len() <= ENTRIES);
        }
        let of = |index| reservations.end_of(at(2 * ENTRIES), &tenant(index), SlotId(0));
        assert_eq!(of(0), Some(at(2 * ENTRIES + 60_000)));
        assert_eq!(of(2 * ENTRIES - 1), Some(at(2 * ENTRIES + 59_999)));
        assert_eq!(of(2 * ENTRIES), Some(at(2 * ENTRIES + 60_000)));
    }
}
