//! Preemption by priority.

use super::*;

fn node(preempt: bool) -> Node {
    let mut node = Node::with(1, TableConfig { preempt, ..TableConfig::default() });
    let quotas = Quotas::parse("[defaults]\nmax_priority = 9\n").unwrap();
    node.table.set_quotas(quotas);
    node
}

fn waiting(node: &mut Node, mib: u64, priority: i32) -> LeaseRequest {
    LeaseRequest { priority, wait: at(60), ..node.ask(mib) }
}

fn announced(actions: &[Action]) -> Vec<LeaseId> {
    let of = |action: &Action| match action {
        Action::AnnounceRevocation { lease, cause: Cause::Preempted { .. }, .. } => Some(*lease),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

#[test]
fn a_request_of_higher_priority_takes_the_place_of_a_lease() {
    let mut node = node(true);
    let low = node.active(0, 900);
    let request = waiting(&mut node, 900, 5);
    let high = node.queued(0, request);
    assert_eq!(announced(&node.actions(0)), [low]);
    let cause = Cause::Preempted { priority: 5 };
    assert_eq!(node.actions(10), [Action::StopAdmission { lease: low, cause }]);
    assert_eq!(node.actions(15), [Action::KillWorker { lease: low }]);
    node.table.worker_gone(at(15), low, true);
    assert!(admitted(&node.actions(15), high).is_some());
    assert_eq!(node.table.counters().preempted, 1);
}

#[test]
fn nothing_is_preempted_unless_the_node_allows_it() {
    let mut node = node(false);
    node.active(0, 900);
    let request = waiting(&mut node, 900, 5);
    node.queued(0, request);
    assert_eq!(node.actions(0), []);
}

#[test]
fn equal_priorities_do_not_preempt() {
    let mut node = node(true);
    let request = waiting(&mut node, 900, 5);
    node.active_of(0, request);
    let request = waiting(&mut node, 900, 5);
    node.queued(0, request);
    assert_eq!(node.actions(0), []);
}

#[test]
fn only_as_many_leases_as_needed_are_preempted() {
    let mut node = node(true);
    let request = waiting(&mut node, 200, 1);
    let middle = node.active_of(0, request);
    let old = node.active(0, 200);
    let young = node.active(0, 200);
    let request = waiting(&mut node, 200, 5);
    node.queued(0, request);
    // Lowest priority first, then the youngest.
    assert_eq!(announced(&node.actions(0)), [young]);
    let request = waiting(&mut node, 200, 5);
    node.queued(1, request);
    assert_eq!(announced(&node.actions(1)), []);
    assert_eq!(node.state(old), Some(LeaseState::Active));
    assert_eq!(node.state(middle), Some(LeaseState::Active));
}

#[test]
fn leases_that_are_leaving_anyway_count_as_room() {
    let mut node = node(true);
    let leaving = node.active(0, 500);
    node.active(0, 200);
    node.table.revoke(at(0), leaving, "maintenance", at(8)).unwrap();
    node.actions(0);
    let request = waiting(&mut node, 500, 5);
    node.queued(0, request);
    assert_eq!(node.actions(0), []);
}

/// A tenant that withdraws its request and repeats it would keep the slot for the whole notice period.
#[test]
fn a_long_notice_prolongs_no_reservation() {
    let mut node = node(true);
    let request = waiting(&mut node, 300, 5);
    let leaving = node.active_of(0, request);
    node.table.renew(at(0), leaving, 1, 3600).unwrap();
    node.table.revoke(at(0), leaving, "maintenance", at(3600)).unwrap();
    node.actions(0);
    let of_bob = |node: &mut Node| {
        let tenant = Tenant::new("bob").unwrap();
        LeaseRequest { tenant, ..waiting(node, 900, 5) }
    };
    let request = of_bob(&mut node);
    let first = node.queued(0, request);
    let small = node.ask(1);
    assert_eq!(node.refused(59, small).status, Status::CapacityExceeded);
    assert!(node.table.cancel(at(59), first));
    let request = of_bob(&mut node);
    node.queued(59, request);
    node.active(60, 1);
}

#[test]
fn a_lease_with_a_long_notice_is_preempted() {
    let mut node = node(true);
    let low = node.active(0, 900);
    node.table.revoke(at(0), low, "maintenance", at(3600)).unwrap();
    node.actions(0);
    let request = waiting(&mut node, 900, 5);
    node.queued(0, request);
    assert_eq!(announced(&node.actions(0)), [low]);
}

#[test]
fn a_request_that_cannot_succeed_preempts_nothing() {
    let mut node = node(true);
    node.active(0, 100);
    let request = waiting(&mut node, 600, 9);
    node.active_of(0, request);
    let request = waiting(&mut node, 400, 5);
    node.queued(0, request);
    assert_eq!(node.actions(0), [], "the lease of priority 9 stays, so there would be no room");

    let mut node = self::node(true);
    node.active(0, 900);
    let request = LeaseRequest { wait: at(15), ..waiting(&mut node, 900, 5) };
    node.queued(0, request);
    assert_eq!(node.actions(0), [], "the wait is over before the notice and the grace are");
    let request = LeaseRequest { wait: at(0), ..waiting(&mut node, 900, 5) };
    assert_eq!(node.refused(0, request).status, Status::CapacityExceeded);
    assert_eq!(node.actions(0), []);
}

/// Its client connects again.
#[test]
fn withdrawn_request_is_repeated_while_the_leases_that_it_preempts_end() {
    let mut node = Node::with(2, TableConfig { preempt: true, ..TableConfig::default() });
    let quotas = "[tenants.bob]\nmax_leases = 1\nmax_priority = 1\n";
    node.table.set_quotas(Quotas::parse(quotas).unwrap());
    let others = [node.active(0, 900), node.active(0, 900)];
    let tenant = Tenant::new("bob").unwrap();
    let request = LeaseRequest { tenant, ..waiting(&mut node, 900, 1) };
    let first = node.queued(0, request.clone());
    assert_eq!(announced(&node.actions(0)).len(), 1);
    assert!(node.table.cancel(at(1), first));
    let other = LeaseRequest { slot: Some("cuda:1".into()), ..request.clone() };
    assert_eq!(node.refused(1, other.clone()).status, Status::BadRequest);
    let other = LeaseRequest { nonce: [99; 16], ..other };
    assert_eq!(node.refused(1, other.clone()).status, Status::QuotaExceeded);
    let again = node.queued(1, request);
    node.actions(10);
    node.actions(15);
    let preempted = others.into_iter().find(|of| node.state(*of) == Some(LeaseState::Killing));
    assert!(node.table.worker_gone(at(15), preempted.unwrap(), true));
    let lease = admitted(&node.actions(15), again).expect("it has the place");
    node.end(16, lease);
    // The lease that it has preempted is gone.
    node.queued(16, other);
}

/// Otherwise a tenant whose quota is one lease ends the leases of all others, and takes none of their places.
#[test]
fn tenant_that_withdraws_its_requests_preempts_no_more_than_its_quota() {
    let mut node = Node::with(3, TableConfig { preempt: true, ..TableConfig::default() });
    let quotas = "[tenants.bob]\nmax_leases = 1\nmax_priority = 1\n";
    node.table.set_quotas(Quotas::parse(quotas).unwrap());
    let others: Vec<_> = (0..3).map(|_| node.active(0, 900)).collect();
    for slot in 0..3 {
        let tenant = Tenant::new("bob").unwrap();
        let slot = Some(format!("cuda:{slot}"));
        let request = LeaseRequest { tenant, slot, ..waiting(&mut node, 900, 1) };
        // It may be refused, as long as the places that it has asked for before become free.
        if let Ok(Placement::Queued { request, .. }) = node.table.request(at(0), request) {
            node.actions(0);
            node.table.cancel(at(0), request);
        }
    }
    node.actions(0);
    node.actions(10);
    let ends = others.iter().filter(|lease| node.state(**lease) != Some(LeaseState::Active));
    let ends = ends.count();
    assert!(ends <= 1, "a tenant with a quota of 1 lease has ended {ends} leases and has none");
}
