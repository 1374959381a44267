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
