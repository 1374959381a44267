//! Idempotency: requests with a nonce that was used before.

use super::*;

#[test]
fn a_repeated_request_returns_the_same_lease() {
    let mut node = Node::new(1);
    let request = node.ask(100);
    let lease = node.lease_of(0, request.clone());
    assert_eq!(node.lease_of(1, request.clone()), lease);
    node.actions(1);
    node.table.worker_ready(at(1), lease);
    assert_eq!(node.lease_of(2, request), lease);
    assert_eq!(node.table.leases().count(), 1);
    assert_eq!(node.table.counters().requests, 1);
}

#[test]
fn a_repeated_request_keeps_its_place_in_the_queue() {
    let mut node = Node::new(1);
    node.active(0, 900);
    let request = LeaseRequest { wait: at(10), ..node.ask(900) };
    let id = node.queued(0, request.clone());
    assert_eq!(node.queued(5, LeaseRequest { wait: at(500), ..request }), id);
    assert_eq!(node.table.queue_len(), 1);
    assert!(matches!(node.actions(10)[..], [Action::Refused { .. }]));
}

#[test]
fn a_request_that_was_admitted_from_the_queue_keeps_its_nonce() {
    let mut node = Node::new(1);
    let lease = node.active(0, 900);
    let request = LeaseRequest { wait: at(10), ..node.ask(900) };
    let id = node.queued(0, request.clone());
    let next = admitted(&node.end(1, lease), id).unwrap();
    assert_eq!(node.lease_of(2, request), next);
}

#[test]
fn tenants_do_not_share_nonces() {
    let mut node = Node::new(1);
    let request = node.ask(100);
    let first = node.lease_of(0, request.clone());
    let second = node.lease_of(0, LeaseRequest { tenant: Tenant::new("bob").unwrap(), ..request });
    assert_ne!(first, second);
}

#[test]
fn other_terms_with_the_same_nonce_are_a_bad_request() {
    let mut node = Node::new(1);
    let request = node.ask(100);
    node.lease_of(0, request.clone());
    let other = LeaseRequest { min_vram: 1, ..request };
    assert_eq!(node.refused(0, other).status, Status::BadRequest);
}

#[test]
fn a_late_repetition_gets_the_cause_of_the_end_and_no_second_lease() {
    let mut node = Node::new(1);
    let request = node.ask(100);
    let lease = node.active_of(0, request.clone());
    node.actions(60);
    assert_eq!(node.refused(60, request.clone()).status, Status::LeaseExpired);
    node.actions(65);
    node.table.worker_gone(at(65), lease, true);
    assert_eq!(node.refused(66, request).status, Status::LeaseExpired);
    assert_eq!(node.table.counters().granted, 1);
}

#[test]
fn the_history_of_ended_leases_is_bounded() {
    let mut node = Node::with(1, TableConfig { ended_limit: 1, ..TableConfig::default() });
    let request = node.ask(100);
    let first = node.active_of(0, request.clone());
    node.end(0, first);
    assert_eq!(node.refused(0, request.clone()).status, Status::NotFound);
    let second = node.active(0, 100);
    node.end(0, second);
    let third = node.lease_of(0, request);
    assert_ne!(third, first);
}
