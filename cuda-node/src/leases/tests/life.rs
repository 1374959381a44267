//! Time limits, renewal, connection, and the ends that clients and the operator cause.

use super::*;

fn stop(lease: LeaseId, cause: Cause) -> Action {
    Action::StopAdmission { lease, cause }
}

#[test]
fn the_time_of_a_lease_begins_when_its_worker_is_ready() {
    let mut node = Node::new(1);
    let lease = node.lease(0, 1);
    assert_eq!(node.state(lease), Some(LeaseState::Granted));
    node.actions(1);
    assert_eq!(node.state(lease), Some(LeaseState::Starting));
    assert!(node.table.worker_ready(at(20), lease));
    assert_eq!(node.state(lease), Some(LeaseState::Active));
    assert_eq!(node.table.next_deadline(), Some(at(80)));
    assert_eq!(node.actions(79), []);
    assert_eq!(node.table.lease(lease).unwrap().remaining, Some(at(1)));
}

#[test]
fn expired_lease_is_killed_after_the_grace() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    assert_eq!(node.actions(60), [stop(lease, Cause::Expired)]);
    assert_eq!(node.state(lease), Some(LeaseState::Draining));
    assert_eq!(node.table.next_deadline(), Some(at(65)));
    assert_eq!(node.actions(64), []);
    assert_eq!(node.actions(65), [Action::KillWorker { lease }]);
    assert_eq!(node.state(lease), Some(LeaseState::Killing));
    assert!(node.table.worker_gone(at(66), lease, true));
    assert_eq!(node.state(lease), None);
    assert_eq!((node.used(0), node.table.next_deadline()), (0, None));
    let counters = node.table.counters();
    assert_eq!((counters.expired, counters.ended), (1, 1));
}

#[test]
fn lease_that_uses_more_memory_than_its_charge_is_killed_without_grace() {
    let mut node = Node::new(1);
    let (lease, neighbor) = (node.active(0, 1), node.active(0, 2));
    let charge = node.table.lease(lease).unwrap().charge;
    node.table.memory_used(at(1), lease, charge);
    assert_eq!(node.actions(1), []);
    let used = charge + 1;
    node.table.memory_used(at(2), lease, used);
    let cause = Cause::OverMemory { used, charge };
    assert_eq!(cause.status(), Status::Revoked);
    assert_eq!(node.actions(2), [stop(lease, cause), Action::KillWorker { lease }]);
    assert_eq!(node.state(neighbor), Some(LeaseState::Active));
}

#[test]
fn a_jump_of_the_clock_skips_no_step() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    assert_eq!(node.actions(1_000_000), [stop(lease, Cause::Expired)]);
    assert_eq!(node.actions(1_000_004), []);
    assert_eq!(node.actions(2_000_000), [Action::KillWorker { lease }]);
    assert_eq!(node.actions(2_000_004), []);
    assert!(node.table.worker_gone(at(2_000_004), lease, true));
}

#[test]
fn the_kill_timeout_starts_when_the_action_is_polled() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    node.table.free(at(1), lease).unwrap();
    let kill = [stop(lease, Cause::Freed), Action::KillWorker { lease }];
    assert_eq!(node.actions(1_000), kill);
    assert_eq!(node.actions(1_029), []);
    assert!(!node.table.slots().next().unwrap().is_fenced);
}

#[test]
fn a_clock_that_goes_back_counts_as_unchanged() {
    let mut node = Node::new(1);
    let lease = node.active(100, 1);
    assert_eq!(node.actions(5), []);
    assert_eq!(node.table.lease(lease).unwrap().remaining, Some(at(60)));
    assert_eq!(node.table.renew(at(0), lease, 1, 100).unwrap().remaining, at(100));
}

#[test]
fn deadlines_do_not_overflow_at_duration_max() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    let end = Duration::MAX;
    assert!(matches!(node.table.poll(end), Some(Action::StopAdmission { .. })));
    assert_eq!(node.table.poll(end), Some(Action::KillWorker { lease }));
    assert_eq!(node.table.poll(end), Some(Action::Fence { slot: SlotId(0) }));
}

#[test]
fn renewal_extends_from_now_and_begins_a_generation() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    let renewal = node.table.renew(at(45), lease, 1, 0).unwrap();
    assert_eq!(renewal, Renewal { generation: 2, remaining: at(60) });
    assert_eq!(node.table.next_deadline(), Some(at(105)));
    let renewal = node.table.renew(at(45), lease, 2, 10).unwrap();
    assert_eq!(renewal, Renewal { generation: 3, remaining: at(60) });
}

#[test]
fn the_previous_generation_is_valid_for_the_overlap() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    node.table.renew(at(10), lease, 1, 1000).unwrap();
    let mut status = |now, generation| {
        node.table.authorize(at(now), lease, generation).map_err(|refusal| refusal.status)
    };
    assert_eq!(status(10, 2), Ok(()));
    assert_eq!(status(39, 1), Ok(()));
    assert_eq!(status(40, 1), Err(Status::Unauthorized));
    assert_eq!(status(40, 0), Err(Status::Unauthorized));
    assert_eq!(status(40, 3), Err(Status::Unauthorized));
    assert_eq!(status(40, 2), Ok(()));
}

#[test]
fn a_repeated_renewal_begins_no_generation() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    node.table.renew(at(10), lease, 1, 100).unwrap();
    let again = node.table.renew(at(11), lease, 1, 100).unwrap();
    assert_eq!(again, Renewal { generation: 2, remaining: at(100) });
}

#[test]
fn a_lost_renewal_costs_no_token() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    let is_valid =
        |node: &mut Node, now, generation| node.table.authorize(at(now), lease, generation).is_ok();
    node.table.renew(at(10), lease, 1, 3000).unwrap();
    node.table.renewal_lost(lease);
    assert!(is_valid(&mut node, 1000, 1));
    // The next one has the usual overlap.
    let renewal = node.table.renew(at(1000), lease, 1, 3000).unwrap();
    assert_eq!(renewal, Renewal { generation: 2, remaining: at(3000) });
    assert!(is_valid(&mut node, 1029, 1));
    assert!(!is_valid(&mut node, 1030, 1));
    // Repetitions do not prolong it.
    node.table.renew(at(1030), lease, 2, 3000).unwrap();
    node.table.renew(at(1050), lease, 2, 3000).unwrap();
    assert!(!is_valid(&mut node, 1060, 2));
    // A lost repetition prolongs only what is valid.
    node.table.renew(at(1060), lease, 3, 3000).unwrap();
    node.table.renewal_lost(lease);
    assert!(is_valid(&mut node, 2000, 3) && !is_valid(&mut node, 2000, 2));
}

#[test]
fn a_renewal_that_arrives_after_the_expiry_is_refused() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    let refusal = node.table.renew(at(60), lease, 1, 60).unwrap_err();
    assert_eq!(refusal.status, Status::LeaseExpired);
    assert_eq!(node.actions(60), [stop(lease, Cause::Expired)]);
}

#[test]
fn a_lease_that_is_starting_cannot_be_renewed() {
    let mut node = Node::new(1);
    let lease = node.lease(0, 1);
    assert_eq!(node.table.renew(at(0), lease, 1, 60).unwrap_err().status, Status::BadRequest);
    assert_eq!(node.table.renew(at(0), LeaseId(99), 1, 60).unwrap_err().status, Status::NotFound);
}

#[test]
fn a_renewal_is_limited_to_max_lease_secs() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    let refusal = node.table.renew(at(0), lease, 1, 3601).unwrap_err();
    assert_eq!(refusal.status, Status::BadRequest);
    assert!(node.table.renew(at(0), lease, 1, 3600).is_ok());
}

#[test]
fn renewals_end_at_the_total_limit() {
    let config = TableConfig { max_total_secs: Some(100), ..TableConfig::default() };
    let mut node = Node::with(1, config);
    let lease = node.active(0, 1);
    assert_eq!(node.table.renew(at(50), lease, 1, 60).unwrap().remaining, at(50));
    let refusal = node.table.renew(at(60), lease, 2, 60).unwrap_err();
    assert_eq!(refusal.status, Status::QuotaExceeded);
    let request = LeaseRequest { lease_secs: 200, ..node.ask(1) };
    let lease = node.active_of(60, request);
    assert_eq!(node.table.lease(lease).unwrap().remaining, Some(at(100)));
}

#[test]
fn a_freed_lease_gets_no_grace() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    node.table.free(at(1), lease).unwrap();
    let kill = [stop(lease, Cause::Freed), Action::KillWorker { lease }];
    assert_eq!(node.actions(1), kill);
    node.table.free(at(2), lease).unwrap();
    assert_eq!(node.actions(2), []);
    node.table.worker_gone(at(2), lease, true);
    assert_eq!(node.table.free(at(3), lease).unwrap_err().status, Status::NotFound);
}

#[test]
fn free_cuts_the_grace_short_and_the_first_cause_stays() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    node.actions(60);
    node.table.free(at(61), lease).unwrap();
    assert_eq!(node.actions(61), [Action::KillWorker { lease }]);
    assert_eq!(node.table.lease(lease).unwrap().cause, Some(&Cause::Expired));
    assert_eq!(node.table.counters().freed, 0);
}

#[test]
fn a_lease_that_is_not_active_ends_without_grace() {
    let mut node = Node::new(1);
    let lease = node.lease(0, 1);
    node.table.revoke(at(0), lease, "maintenance", at(30)).unwrap();
    let actions = node.actions(0);
    assert!(matches!(actions[0], Action::AssignWorker { .. }));
    assert!(matches!(actions[1], Action::StopAdmission { .. }));
    assert_eq!(actions[2], Action::KillWorker { lease });
}

#[test]
fn a_revocation_is_announced_and_executed_after_its_notice() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    node.table.revoke(at(1), lease, "maintenance", at(20)).unwrap();
    let cause = Cause::Revoked { reason: "maintenance".into() };
    let announce = Action::AnnounceRevocation { lease, cause: cause.clone(), notice: at(20) };
    assert_eq!(node.actions(2), [announce]);
    assert_eq!(node.state(lease), Some(LeaseState::Active));
    assert_eq!(node.table.authorize(at(3), lease, 1), Ok(()));
    let refusal = node.table.renew(at(3), lease, 1, 60).unwrap_err();
    assert_eq!(refusal.status, Status::Revoked);
    assert!(refusal.message.contains("maintenance"), "{refusal}");
    assert_eq!(node.actions(21), []);
    assert_eq!(node.actions(22), [stop(lease, cause)]);
    assert_eq!(node.actions(27), [Action::KillWorker { lease }]);
    assert_eq!(node.table.counters().revoked, 1);
}

#[test]
fn a_revocation_without_notice_begins_at_once() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    node.table.revoke(at(1), lease, "abuse", Duration::ZERO).unwrap();
    assert!(matches!(node.actions(1)[..], [Action::StopAdmission { .. }]));
    assert_eq!(node.table.revoke(at(1), lease, "", at(0)).unwrap_err().status, Status::Revoked);
}

#[test]
fn a_second_notice_only_shortens_the_first() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    node.table.revoke(at(0), lease, "first", at(20)).unwrap();
    node.actions(0);
    node.table.revoke(at(1), lease, "later", at(30)).unwrap();
    assert_eq!(node.actions(1), []);
    node.table.revoke(at(2), lease, "sooner", at(5)).unwrap();
    assert!(matches!(node.actions(2)[..], [Action::AnnounceRevocation { .. }]));
    assert_eq!(node.table.next_deadline(), Some(at(7)));
    assert!(matches!(&node.actions(7)[..], [Action::StopAdmission { .. }]));
}

#[test]
fn a_lease_expires_within_a_long_notice() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    node.table.revoke(at(0), lease, "maintenance", at(100)).unwrap();
    node.actions(0);
    assert_eq!(node.actions(60), [stop(lease, Cause::Expired)]);
}

#[test]
fn a_client_that_reconnects_keeps_its_lease() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    assert!(node.table.disconnected(at(1), lease));
    assert!(!node.table.disconnected(at(5), lease));
    assert!(!node.table.lease(lease).unwrap().is_connected);
    assert_eq!(node.table.next_deadline(), Some(at(11)));
    node.table.reconnected(at(10), lease).unwrap();
    assert_eq!(node.table.next_deadline(), Some(at(60)));
}

#[test]
fn a_lease_ends_without_grace_after_the_reconnect_window() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    node.table.disconnected(at(1), lease);
    let kill = [stop(lease, Cause::Disconnected), Action::KillWorker { lease }];
    assert_eq!(node.actions(11), kill);
    assert_eq!(node.table.reconnected(at(11), lease).unwrap_err().status, Status::Disconnected);
}

#[test]
fn the_reconnect_window_ends_the_grace() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    node.table.disconnected(at(53), lease);
    assert_eq!(node.actions(60), [stop(lease, Cause::Expired)]);
    assert_eq!(node.actions(63), [Action::KillWorker { lease }]);
}

#[test]
fn lease_of_an_earlier_node_without_a_place_is_refused_with_the_reason() {
    let mut earlier = Node::new(1);
    let [a, b, c] = [300, 300, 50].map(|mib| earlier.active(0, mib));
    let slot = SlotConfig { capacity: 600 * MIB, ..gpu("cuda:0") };
    let mut table = LeaseTable::new(TableConfig::default(), vec![slot], Quotas::default()).unwrap();
    let mut restore = |lease| {
        let kept = earlier.table.kept(lease).unwrap();
        table.restore(at(0), kept, Duration::ZERO)
    };
    assert_eq!([a, b, c].map(&mut restore), [Some(a), None, Some(c)]);
    let refused = table.authorize(at(0), b, 1).unwrap_err();
    assert_eq!(refused.status, Status::Revoked);
    assert!(refused.message.contains("with less capacity"), "{}", refused.message);
    let counters = table.counters();
    assert_eq!((counters.no_place, counters.endings(), counters.ended), (1, 1, 1));
}

/// Otherwise each restart of the node gives all leases the whole total duration again.
#[test]
fn lease_of_an_earlier_node_ends_at_the_total_limit() {
    let config = TableConfig { max_total_secs: Some(100), ..TableConfig::default() };
    let mut earlier = Node::with(1, config.clone());
    let lease = earlier.active(0, 1);
    // The next node runs 5 seconds later.
    let restart = |earlier: &mut Node, now| {
        earlier.actions(now);
        let kept = earlier.table.kept(lease).unwrap();
        let mut node = Node::with(1, config.clone());
        node.table.restore(at(0), kept, at(5)).unwrap();
        node.table.reconnected(at(0), lease).unwrap();
        node
    };
    let mut second = restart(&mut earlier, 25);
    second.table.renew(at(0), lease, 1, 60).unwrap();
    let mut third = restart(&mut second, 30);
    assert_eq!(third.table.renew(at(5), lease, 2, 60).unwrap().remaining, at(30));
    assert_eq!(third.table.renew(at(6), lease, 3, 60).unwrap_err().status, Status::QuotaExceeded);
}
