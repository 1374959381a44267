//! The queue: order, reservation, limits, time.

use super::*;

fn waiting(node: &mut Node, mib: u64) -> LeaseRequest {
    LeaseRequest { wait: at(100), ..node.ask(mib) }
}

/// A request that waits for a device without other leases, by another tenant than those of [`Node::ask`].
fn waiting_for_a_device(node: &mut Node, mib: u64) -> LeaseRequest {
    let (tenant, class) = (Tenant::new("dora").unwrap(), Exclusivity::Device);
    LeaseRequest { tenant, class, ..waiting(node, mib) }
}

#[test]
fn a_waiting_request_is_admitted_when_a_lease_ends() {
    let mut node = Node::new(1);
    let lease = node.active(0, 900);
    let request = waiting(&mut node, 500);
    let request = node.queued(0, request);
    assert_eq!(node.table.slots().next().unwrap().queued, 1);
    let actions = node.end(1, lease);
    let next = admitted(&actions, request).unwrap();
    let assign = Action::AssignWorker { lease: next, slot: SlotId(0), quota: 500 * MIB };
    assert_eq!(actions, [Action::Admitted { request, lease: next }, assign]);
    assert_eq!(node.table.queue_len(), 0);
}

#[test]
fn requests_of_one_priority_are_served_in_order_of_arrival() {
    let mut node = Node::new(1);
    let lease = node.active(0, 900);
    let first = waiting(&mut node, 900);
    let second = waiting(&mut node, 900);
    let first = node.queued(0, first);
    let second = node.queued(0, second);
    let actions = node.end(1, lease);
    let next = admitted(&actions, first).unwrap();
    assert_eq!(admitted(&actions, second), None);
    assert!(admitted(&node.end(2, next), second).is_some());
}

#[test]
fn higher_priorities_are_served_first() {
    let mut node = Node::new(1);
    node.table.set_quotas(priority(9));
    let lease = node.active(0, 900);
    let low = waiting(&mut node, 900);
    let low = node.queued(0, low);
    let high = LeaseRequest { priority: 5, ..waiting(&mut node, 900) };
    let Ok(Placement::Queued { request: high, ahead: 0 }) = node.table.request(at(0), high) else {
        panic!("not first");
    };
    let actions = node.end(1, lease);
    assert!(admitted(&actions, high).is_some());
    assert_eq!(admitted(&actions, low), None);
}

#[test]
fn a_small_request_does_not_overtake_the_head_of_the_queue() {
    let mut node = Node::new(1);
    let lease = node.active(0, 300);
    let request = waiting_for_a_device(&mut node, 100);
    let device = node.queued(0, request);
    let small = node.ask(1);
    let refusal = node.refused(1, small);
    assert_eq!(refusal.status, Status::CapacityExceeded);
    assert!(refusal.message.contains("reserved for a request that waits, for 59 s"), "{refusal}");
    let small = waiting(&mut node, 1);
    let small = node.queued(1, small);
    let actions = node.end(2, lease);
    let lease = admitted(&actions, device).unwrap();
    assert_eq!(admitted(&actions, small), None);
    assert!(admitted(&node.end(3, lease), small).is_some());
}

#[test]
fn the_head_reserves_only_one_of_several_slots() {
    let mut node = Node::new(2);
    for mib in [300, 300, 300] {
        node.active(0, mib);
    }
    let request = waiting_for_a_device(&mut node, 100);
    node.queued(0, request);
    // The slot with one lease is reserved. The other one has room for 200 MiB with the reserve.
    let lease = node.lease(0, 50);
    assert_eq!(node.table.lease(lease).unwrap().slot, SlotId(0));
    assert_eq!(node.table.slots().nth(1).unwrap().leases, 1);
}

#[test]
fn a_device_request_does_not_starve_under_constant_load() {
    let mut node = Node::new(2);
    let mut leases: Vec<_> = (0..6).map(|_| node.active(0, 100)).collect();
    let request = waiting_for_a_device(&mut node, 800);
    let device = node.queued(0, request);
    // Each step ends the oldest lease and requests another one.
    for now in 1..20 {
        let oldest = leases.remove(0);
        let actions = node.end(now, oldest);
        if admitted(&actions, device).is_some() {
            return;
        }
        let request = node.ask(100);
        if let Ok(Placement::Leased(lease)) = node.table.request(at(now), request) {
            leases.push(lease);
            node.actions(now);
        }
    }
    panic!("the device request starved");
}

#[test]
fn a_request_that_leases_of_its_own_tenant_keep_out_reserves_nothing() {
    let mut node = Node::new(1);
    let own = node.active(0, 300);
    let device = LeaseRequest { class: Exclusivity::Device, ..waiting(&mut node, 100) };
    let device = node.queued(0, device);
    let tenant = Tenant::new("bob").unwrap();
    let of_bob = LeaseRequest { tenant, ..node.ask(100) };
    let of_bob = node.active_of(1, of_bob);
    // Now a lease of another tenant keeps it out too, but it would wait for its own one in any case.
    let another = node.active(1, 100);
    for lease in [own, another] {
        node.end(2, lease);
    }
    // Now it waits only for bob, and reserves the device.
    let late = node.ask(1);
    assert_eq!(node.refused(3, late).status, Status::CapacityExceeded);
    assert!(admitted(&node.end(4, of_bob), device).is_some());
}

#[test]
fn a_reservation_ends_while_its_request_goes_on_waiting() {
    let config = TableConfig { max_reservation: at(20), ..TableConfig::default() };
    let mut node = Node::with(1, config);
    let lease = node.active(0, 300);
    node.table.renew(at(0), lease, 1, 1000).unwrap();
    let device = waiting_for_a_device(&mut node, 100);
    let device = node.queued(0, device);
    let small = waiting(&mut node, 100);
    let small = node.queued(0, small);
    assert_eq!(node.table.next_deadline(), Some(at(20)));
    assert_eq!(node.actions(19), []);
    let actions = node.actions(20);
    let small = admitted(&actions, small).unwrap();
    assert!(node.table.next_deadline() > Some(at(20)));
    // It still gets the device once the device has no lease.
    node.end(30, lease);
    assert!(admitted(&node.end(31, small), device).is_some());
}

/// A tenant without a lease kept requests out by cancelling its request and sending another one.
#[test]
fn a_tenant_that_repeats_its_request_reserves_a_device_no_longer_than_with_one() {
    let mut node = Node::new(1);
    let lease = node.active(0, 300);
    node.table.renew(at(0), lease, 1, 3600).unwrap();
    let repeat = |node: &mut Node, now: u64, device: RequestId| {
        assert!(node.table.cancel(at(now), device));
        let next = waiting_for_a_device(node, 100);
        node.queued(now, next)
    };
    let device = waiting_for_a_device(&mut node, 100);
    let device = node.queued(0, device);
    let small = node.ask(1);
    assert!(node.refused(58, small).message.contains("for 2 s at most"));
    let mut device = repeat(&mut node, 59, device);
    assert_eq!(node.table.next_deadline(), Some(at(60)));
    let small = node.ask(1);
    assert!(node.refused(59, small).message.contains("for 1 s at most"));
    // The tenant has reserved the device for 60 s, and reserves it no more for 240 s.
    for now in [60, 119, 178, 237, 296] {
        let small = node.active(now, 1);
        node.end(now, small);
        device = repeat(&mut node, now, device);
    }
    let small = node.active(299, 1);
    node.end(299, small);
    // Another tenant reserves it meanwhile.
    assert!(node.table.cancel(at(299), device));
    let tenant = Tenant::new("emma").unwrap();
    let emma = LeaseRequest { tenant, ..waiting_for_a_device(&mut node, 100) };
    let emma = node.queued(299, emma);
    let small = node.ask(1);
    assert_eq!(node.refused(299, small).status, Status::CapacityExceeded);
    assert!(node.table.cancel(at(299), emma));
    let device = waiting_for_a_device(&mut node, 100);
    node.queued(300, device);
    let small = node.ask(1);
    assert_eq!(node.refused(300, small).status, Status::CapacityExceeded);
}

#[test]
fn a_tenant_that_reserves_no_more_still_gets_the_device() {
    let mut node = Node::new(2);
    for _ in 0..2 {
        let lease = node.active(0, 500);
        node.table.renew(at(0), lease, 1, 3600).unwrap();
    }
    let first = SlotId(0);
    let of_first = |node: &mut Node| LeaseRequest {
        slot: Some("cuda:0".into()),
        ..waiting_for_a_device(node, 800)
    };
    let device = of_first(&mut node);
    let device = node.queued(0, device);
    node.actions(60);
    assert!(node.table.cancel(at(60), device));
    let device = of_first(&mut node);
    let device = node.queued(60, device);
    // The other device is reserved for the same tenant.
    let other = LeaseRequest { slot: Some("cuda:1".into()), ..of_first(&mut node) };
    node.queued(60, other);
    let small = LeaseRequest { slot: Some("cuda:1".into()), ..node.ask(1) };
    assert_eq!(node.refused(60, small).status, Status::CapacityExceeded);
    let held = node.table.leases().find(|lease| lease.slot == first).unwrap().id;
    assert!(admitted(&node.end(61, held), device).is_some());
}

#[test]
fn a_tenant_that_may_preempt_does_so_again_after_its_reservations() {
    let config = TableConfig { preempt: true, ..TableConfig::default() };
    let mut node = Node::with(1, config);
    node.table.set_quotas(priority(9));
    for round in 0..6 {
        let now = round * 20;
        let low = node.active(now, 900);
        let high = LeaseRequest { priority: 5, ..waiting_for_a_device(&mut node, 900) };
        let high = node.queued(now, high);
        assert!(
            matches!(node.actions(now)[..], [Action::AnnounceRevocation { lease, .. }] if lease == low),
            "round {round}"
        );
        node.actions(now + 10);
        node.actions(now + 15);
        assert!(node.table.worker_gone(at(now + 15), low, true));
        let lease = admitted(&node.actions(now + 15), high).unwrap();
        node.end(now + 16, lease);
    }
}

#[test]
fn a_full_queue_gives_a_place_of_the_tenant_with_the_most_to_a_tenant_with_fewer() {
    let mut node = Node::with(1, TableConfig { queue_limit: 3, ..TableConfig::default() });
    let lease = node.active(0, 900);
    let alice: Vec<_> = (0..3)
        .map(|_| {
            let request = waiting(&mut node, 900);
            node.queued(0, request)
        })
        .collect();
    let mut of_bob =
        || LeaseRequest { tenant: Tenant::new("bob").unwrap(), ..waiting(&mut node, 900) };
    let (first, second) = (of_bob(), of_bob());
    let first = node.queued(1, first);
    let [Action::Refused { request, refusal }] = &node.actions(1)[..] else {
        panic!("not refused");
    };
    assert_eq!((*request, refusal.status), (alice[2], Status::CapacityExceeded));
    assert!(refusal.message.contains("tenant \"alice\" has the most"), "{refusal}");
    // With another one, bob would have as many as alice had.
    assert_eq!(node.refused(1, second).status, Status::CapacityExceeded);
    let mut next = lease;
    for request in [alice[0], alice[1], first] {
        next = admitted(&node.end(2, next), request).unwrap();
    }
}

#[test]
fn the_queue_is_bounded() {
    let mut node = Node::with(1, TableConfig { queue_limit: 1, ..TableConfig::default() });
    node.active(0, 900);
    let request = waiting(&mut node, 1);
    node.queued(0, request);
    let request = waiting(&mut node, 1);
    let refusal = node.refused(0, request);
    assert_eq!(refusal.status, Status::CapacityExceeded);
    assert!(refusal.message.contains("1 requests wait"), "{refusal}");
}

#[test]
fn a_request_is_refused_after_its_wait() {
    let mut node = Node::new(1);
    let lease = node.active(0, 900);
    let request = waiting(&mut node, 900);
    let request = node.queued(1, request);
    assert_eq!(node.table.next_deadline(), Some(at(60)));
    node.table.renew(at(50), lease, 1, 1000).unwrap();
    assert_eq!(node.actions(100), []);
    assert_eq!(node.table.next_deadline(), Some(at(101)));
    let [Action::Refused { request: of, refusal }] = &node.actions(101)[..] else {
        panic!("not refused");
    };
    assert_eq!((*of, refusal.status), (request, Status::CapacityExceeded));
    assert_eq!(node.table.counters().refused[&Status::CapacityExceeded], 1);
}

#[test]
fn waits_are_limited() {
    let mut node = Node::with(1, TableConfig { max_wait: at(5), ..TableConfig::default() });
    node.active(0, 900);
    let request = waiting(&mut node, 900);
    node.queued(0, request);
    assert!(matches!(node.actions(5)[..], [Action::Refused { .. }]));
}

#[test]
fn the_end_of_a_wait_admits_the_requests_behind() {
    let mut node = Node::new(1);
    node.active(0, 300);
    let device = LeaseRequest { wait: at(5), ..waiting_for_a_device(&mut node, 1) };
    node.queued(0, device);
    let small = waiting(&mut node, 1);
    let small = node.queued(0, small);
    let actions = node.actions(5);
    assert!(matches!(actions[0], Action::Refused { .. }));
    assert!(admitted(&actions, small).is_some());
}

#[test]
fn a_cancelled_request_gives_up_its_place() {
    let mut node = Node::new(1);
    node.active(0, 300);
    let device = waiting_for_a_device(&mut node, 1);
    let device = node.queued(0, device);
    let small = waiting(&mut node, 1);
    let small = node.queued(0, small);
    assert!(node.table.cancel(at(1), device));
    assert!(!node.table.cancel(at(1), device));
    assert!(admitted(&node.actions(1), small).is_some());
    assert_eq!(node.table.counters().cancelled, 1);
}

/// Quotas that allow priorities up to this one.
fn priority(max_priority: i32) -> Quotas {
    Quotas::parse(&format!("[defaults]\nmax_priority = {max_priority}\n")).unwrap()
}
