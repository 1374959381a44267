//! Admission by bytes, counts, classes, limits and quotas.

use crate::quotas::{Classes, Quota};

use super::*;

#[test]
fn a_lease_is_charged_with_quota_and_reserve() {
    let mut node = Node::new(1);
    let lease = node.lease(0, 300);
    let assign = Action::AssignWorker { lease, slot: SlotId(0), quota: 300 * MIB };
    assert_eq!(node.actions(0), [assign]);
    assert_eq!(node.used(0), 400 * MIB);
}

#[test]
fn leases_fill_the_slot_to_the_last_byte() {
    let mut node = Node::new(1);
    node.lease(0, 400);
    let mut request = node.ask(400);
    request.min_vram += 1;
    let refusal = node.refused(0, request);
    assert_eq!(refusal.status, Status::CapacityExceeded);
    assert!(refusal.message.contains(&format!("at most {} bytes free", 400 * MIB)), "{refusal}");
    node.lease(0, 400);
    assert_eq!(node.used(0), 1000 * MIB);
}

#[test]
fn bytes_of_a_lease_count_until_its_memory_is_verified() {
    let mut node = Node::new(1);
    let lease = node.active(0, 900);
    node.table.free(at(1), lease).unwrap();
    node.actions(1);
    let request = node.ask(100);
    assert_eq!(node.refused(1, request).status, Status::CapacityExceeded);
    node.table.worker_gone(at(2), lease, true);
    node.lease(2, 100);
}

#[test]
fn a_lease_that_no_slot_can_ever_hold_is_refused_at_once() {
    let mut node = Node::new(1);
    let request = LeaseRequest { wait: at(60), ..node.ask(901) };
    let refusal = node.refused(0, request);
    assert_eq!(refusal.status, Status::TooLarge);
    assert!(refusal.message.contains(&format!("{} bytes", 900 * MIB)), "{refusal}");
    let request = LeaseRequest { min_vram: u64::MAX, ..node.ask(1) };
    assert_eq!(node.refused(0, request).status, Status::TooLarge);
}

#[test]
fn the_number_of_leases_of_a_slot_is_limited() {
    let mut node = Node::new(1);
    for _ in 0..4 {
        node.lease(0, 1);
    }
    let request = node.ask(1);
    let refusal = node.refused(0, request);
    assert_eq!(refusal.status, Status::CapacityExceeded);
    assert!(refusal.message.contains("has 4 leases, the limit"), "{refusal}");
}

#[test]
fn leases_spread_over_slots_and_leave_large_gaps() {
    let mut node = Node::new(2);
    let first = node.lease(0, 500);
    let second = node.lease(0, 100);
    let slot = |node: &Node, lease| node.table.lease(lease).unwrap().slot;
    assert_ne!(slot(&node, first), slot(&node, second));
    // Both slots have one lease: the one with less free memory.
    let third = node.lease(0, 100);
    assert_eq!(slot(&node, third), slot(&node, first));
}

#[test]
fn a_request_names_its_slot() {
    let mut node = Node::new(2);
    let request = LeaseRequest { slot: Some("cuda:1".into()), ..node.ask(1) };
    let lease = node.lease_of(0, request);
    assert_eq!(node.table.lease(lease).unwrap().slot_name, "cuda:1");
    let request = LeaseRequest { slot: Some("cuda:7".into()), ..node.ask(1) };
    let refusal = node.refused(0, request);
    assert_eq!(refusal.status, Status::NotFound);
    assert!(refusal.message.contains("cuda:0, cuda:1"), "{refusal}");
}

#[test]
fn a_device_lease_is_alone_on_its_slot() {
    for (first, second) in [
        (Exclusivity::Device, Exclusivity::Shared),
        (Exclusivity::Shared, Exclusivity::Device),
        (Exclusivity::Device, Exclusivity::Device),
        (Exclusivity::Session, Exclusivity::Device),
    ] {
        let mut node = Node::new(1);
        let request = LeaseRequest { class: first, ..node.ask(1) };
        node.lease_of(0, request);
        let request = LeaseRequest { class: second, ..node.ask(1) };
        let refusal = node.refused(0, request.clone());
        assert_eq!(refusal.status, Status::CapacityExceeded);
        let why = format!(
            "class `{}` on the device it gives none of the class `{}`",
            first.name(),
            second.name()
        );
        assert!(refusal.message.contains(&why), "{refusal}");
        // A request that waits gets the same reason.
        node.queued(0, LeaseRequest { wait: at(5), nonce: [9; 16], ..request });
        let actions = node.actions(5);
        let is_why = |action: &Action| matches!(action, Action::Refused { refusal, .. } if refusal.message.contains(&why));
        assert!(actions.iter().any(is_why), "{actions:?}");
    }
}

#[test]
fn shared_and_session_leases_do_not_mix() {
    let mut node = Node::new(2);
    let request = LeaseRequest { class: Exclusivity::Session, ..node.ask(1) };
    let session = node.lease_of(0, request);
    let shared = node.lease(0, 1);
    let request = LeaseRequest { class: Exclusivity::Session, ..node.ask(1) };
    let other = node.lease_of(0, request);
    let slot = |lease| node.table.lease(lease).unwrap().slot;
    assert_eq!(slot(session), slot(other));
    assert_ne!(slot(session), slot(shared));
}

#[test]
fn an_empty_slot_takes_any_class_again() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    node.end(0, lease);
    let request = LeaseRequest { class: Exclusivity::Device, ..node.ask(900) };
    node.lease_of(0, request);
}

#[test]
fn fields_outside_the_limits_are_bad_requests() {
    let mut node = Node::new(1);
    let request = node.ask(0);
    assert_eq!(node.refused(0, request).status, Status::BadRequest);
    let request = LeaseRequest { lease_secs: 3601, ..node.ask(1) };
    let refusal = node.refused(0, request);
    assert_eq!(refusal.status, Status::BadRequest);
    assert!(refusal.message.contains("3600"), "{refusal}");
}

#[test]
fn zero_seconds_request_the_default() {
    let mut node = Node::new(1);
    let lease = node.lease(0, 1);
    assert_eq!(node.table.lease(lease).unwrap().remaining, Some(at(60)));
}

#[test]
fn quotas_of_the_tenant_are_limits() {
    let mut node = Node::new(1);
    let quota = Quota {
        max_leases: 2,
        max_vram: 500 * MIB,
        max_lease_secs: 30,
        max_priority: 3,
        ..Quota::default()
    };
    let alice = Tenant::new("alice").unwrap();
    node.table.set_quotas(Quotas::default().with(alice, quota));
    let mut exceeds = |change: fn(&mut LeaseRequest)| {
        let mut request = node.ask(1);
        change(&mut request);
        assert_eq!(node.refused(0, request).status, Status::TooLarge);
    };
    exceeds(|request| request.min_vram = 501 * MIB);
    exceeds(|request| request.lease_secs = 31);
    exceeds(|request| request.priority = 4);

    let request = LeaseRequest { priority: 3, ..node.ask(400) };
    let first = node.lease_of(0, request);
    assert_eq!(node.table.lease(first).unwrap().remaining, Some(at(30)));
    let request = node.ask(101);
    assert_eq!(node.refused(0, request).status, Status::QuotaExceeded);
    node.lease(0, 100);
    let request = node.ask(1);
    let refusal = node.refused(0, request);
    assert_eq!(refusal.status, Status::QuotaExceeded);
    assert!(refusal.message.contains("\"alice\"") && refusal.message.contains("limit is 2"));

    let other = LeaseRequest { tenant: Tenant::new("bob").unwrap(), ..node.ask(1) };
    node.lease_of(0, other);
    assert_eq!(node.table.counters().refused[&Status::QuotaExceeded], 2);
    assert_eq!(node.table.counters().refused[&Status::TooLarge], 3);
}

#[test]
fn classes_that_a_tenant_may_request_are_limited() {
    let mut node = Node::new(1);
    let classes = Classes::of(&[Exclusivity::Shared, Exclusivity::Session]);
    let quota = Quota { classes, ..Quota::default() };
    node.table.set_quotas(Quotas::default().with(Tenant::new("alice").unwrap(), quota));
    let request = LeaseRequest { class: Exclusivity::Device, wait: at(60), ..node.ask(1) };
    let refusal = node.refused(0, request);
    assert_eq!(refusal.status, Status::TooLarge);
    assert!(refusal.message.contains("`device`; request one of the class `shared` or `session`"));
    let request = LeaseRequest { class: Exclusivity::Session, ..node.ask(1) };
    node.lease_of(0, request);
}

#[test]
fn what_the_quota_never_allows_asks_for_no_free() {
    let mut node = Node::new(1);
    let mut refused = |quota| {
        node.table.set_quotas(Quotas::default().with(Tenant::new("alice").unwrap(), quota));
        let request = node.ask(2);
        let refusal = node.refused(0, request);
        assert_eq!(refusal.status, Status::TooLarge);
        refusal.message
    };
    let message = refused(Quota { max_leases: 0, ..Quota::default() });
    assert!(message.contains("may have no leases (max_leases); ask the operator"), "{message}");
    let message = refused(Quota { max_vram: MIB, ..Quota::default() });
    assert!(message.contains("request at most 1048576 bytes"), "{message}");
}

#[test]
fn a_tenant_can_replace_a_lease_that_it_frees() {
    let mut node = Node::new(1);
    let quota = Quota { max_leases: 1, ..Quota::default() };
    node.table.set_quotas(Quotas::default().with(Tenant::new("alice").unwrap(), quota));
    let lease = node.active(0, 1);
    node.table.free(at(1), lease).unwrap();
    node.lease(1, 1);
}

#[test]
fn waiting_requests_count_against_the_quota() {
    let mut node = Node::new(1);
    let quota = Quota { max_leases: 2, ..Quota::default() };
    node.table.set_quotas(Quotas::default().with(Tenant::new("alice").unwrap(), quota));
    node.active(0, 900);
    let request = LeaseRequest { wait: at(60), ..node.ask(900) };
    node.queued(0, request);
    let request = LeaseRequest { wait: at(60), ..node.ask(900) };
    assert_eq!(node.refused(0, request).status, Status::QuotaExceeded);
}

#[test]
fn new_quotas_do_not_touch_present_leases() {
    let mut node = Node::new(1);
    let lease = node.active(0, 900);
    let request = LeaseRequest { wait: at(60), ..node.ask(900) };
    let request = node.queued(0, request);
    let quota = Quota { max_leases: 0, max_lease_secs: 10, ..Quota::default() };
    node.table.set_quotas(Quotas::default().with(Tenant::new("alice").unwrap(), quota));
    let refusal = node.table.renew(at(1), lease, 1, 60).unwrap_err();
    assert_eq!(refusal.status, Status::TooLarge);
    assert_eq!(node.table.renew(at(1), lease, 1, 0).unwrap().remaining, at(59));
    let actions = node.end(2, lease);
    assert!(admitted(&actions, request).is_some());
}

#[test]
fn contradictory_configurations_are_errors() {
    let new = |config, slots| LeaseTable::new(config, slots, Quotas::default()).map(|_| ());
    let config = TableConfig::default;
    assert_eq!(new(config(), vec![]), Err(ConfigError::NoSlots));
    let twice = vec![gpu("cuda:0"), gpu("cuda:0")];
    assert_eq!(new(config(), twice), Err(ConfigError::DuplicateSlot("cuda:0".into())));
    let full = SlotConfig { capacity: 100 * MIB, ..gpu("cuda:0") };
    assert!(matches!(new(config(), vec![full]), Err(ConfigError::NoRoom { .. })));
    let slice = TableConfig { time_slice: Duration::ZERO, ..config() };
    let error = new(slice, vec![gpu("cuda:0")]).unwrap_err();
    assert_eq!(error.to_string(), "time_slice is 0ns; it must be longer than 0");
    let short = TableConfig { max_lease_secs: 1, ..config() };
    assert!(new(short, vec![gpu("cuda:0")]).is_err());
}
