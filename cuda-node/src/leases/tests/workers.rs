//! Reports about workers, and fences.

use super::*;

fn fenced(node: &Node, slot: usize) -> bool {
    node.table.slots().nth(slot).unwrap().is_fenced
}

/// A lease whose kill was polled at this time.
fn killed(node: &mut Node, now: u64) -> LeaseId {
    let lease = node.active(now, 100);
    node.table.free(at(now), lease).unwrap();
    node.actions(now);
    lease
}

#[test]
fn a_worker_that_does_not_start_ends_the_lease() {
    let mut node = Node::new(1);
    let lease = node.lease(0, 1);
    node.actions(5);
    assert_eq!(node.table.next_deadline(), Some(at(35)));
    let stop = Action::StopAdmission { lease, cause: Cause::StartTimedOut };
    assert_eq!(node.actions(35), [stop, Action::KillWorker { lease }]);
    assert!(!node.table.worker_ready(at(36), lease));
}

#[test]
fn a_worker_that_cannot_start_has_not_died() {
    let mut node = Node::new(1);
    let request = node.ask(1);
    let lease = node.lease_of(0, request.clone());
    let reason = || "it has no driver".to_owned();
    // Nobody was asked to start it yet.
    assert!(!node.table.worker_not_started(at(0), lease, reason()));
    node.actions(0);
    assert!(node.table.worker_not_started(at(1), lease, reason()));
    let cause = Cause::NotStarted { reason: reason() };
    let stop = Action::StopAdmission { lease, cause };
    assert_eq!(node.actions(1), [stop, Action::KillWorker { lease }]);
    assert!(!node.table.worker_not_started(at(1), lease, reason()));
    let counters = node.table.counters();
    assert_eq!((counters.not_started, counters.workers_died), (1, 0));
    assert_eq!(counters.endings(), 1);
    node.table.worker_gone(at(1), lease, true);
    let refusal = node.refused(2, request);
    assert_eq!(refusal.status, Status::Internal);
    assert!(refusal.message.contains("its worker did not start: it has no driver"), "{refusal:?}");
    // A worker that has started can only die.
    let started = node.active(3, 1);
    assert!(!node.table.worker_not_started(at(3), started, reason()));
}

#[test]
fn a_dead_worker_ends_the_lease_without_grace() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    assert!(node.table.worker_died(at(1), lease, None));
    let stop = Action::StopAdmission { lease, cause: Cause::WorkerDied };
    assert_eq!(node.actions(1), [stop, Action::KillWorker { lease }]);
    assert!(!node.table.worker_died(at(1), lease, None));
    assert_eq!(node.table.counters().workers_died, 1);
}

#[test]
fn worker_beyond_its_host_memory_ends_the_lease_with_the_limit() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    assert!(node.table.worker_died(at(1), lease, Some(64 * MIB)));
    let cause = Cause::OutOfHostMemory { limit: 64 * MIB };
    assert!(cause.to_string().contains("ran out of host memory, the limit is 67108864 bytes"));
    let stop = Action::StopAdmission { lease, cause };
    assert_eq!(node.actions(1), [stop, Action::KillWorker { lease }]);
    assert_eq!(node.table.counters().out_of_host_memory, 1);
}

#[test]
fn memory_is_credited_only_after_the_kill() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    assert!(node.table.worker_gone(at(1), lease, true));
    assert_eq!(node.used(0), 101 * MIB);
    assert!(!node.table.worker_gone(at(1), lease, true));
    node.actions(1);
    assert!(node.table.worker_gone(at(1), lease, true));
    assert_eq!(node.used(0), 0);
    assert!(!node.table.worker_gone(at(1), lease, true));
    assert_eq!(node.table.counters().ended, 1);
}

#[test]
fn reports_about_unknown_leases_have_no_effect() {
    let mut node = Node::new(1);
    let lease = LeaseId(7);
    assert!(!node.table.worker_ready(at(0), lease));
    assert!(!node.table.worker_died(at(0), lease, None));
    assert!(!node.table.worker_gone(at(0), lease, false));
    assert!(!node.table.session_busy(at(0), lease));
    assert!(!node.table.session_idle(at(0), lease));
    assert!(!node.table.session_paused(at(0), lease));
    assert!(!node.table.disconnected(at(0), lease));
    assert!(!node.table.fence(at(0), SlotId(9)));
    assert!(node.table.unfence(at(0), SlotId(9)).is_err());
    assert_eq!(node.actions(0), []);
}

#[test]
fn worker_that_ends_slowly_does_not_fence_the_slot() {
    let mut node = Node::new(1);
    let lease = node.active(0, 100);
    node.table.free(at(0), lease).unwrap();
    // The table has not asked for its kill yet.
    assert!(!node.table.worker_ends(at(0), lease));
    node.actions(0);
    for now in [29, 58, 87] {
        assert!(node.table.worker_ends(at(now), lease));
        assert_eq!((node.actions(now), node.used(0)), (vec![], 200 * MIB));
    }
    assert!(node.table.worker_gone(at(116), lease, true));
    assert_eq!(node.used(0), 0);
    assert!(!node.table.worker_ends(at(116), lease));
    // Without a report the time is over.
    let stuck = killed(&mut node, 120);
    assert!(node.table.worker_ends(at(149), stuck));
    assert_eq!(node.actions(179), [Action::Fence { slot: SlotId(0) }]);
    assert!(!node.table.worker_ends(at(179), stuck));
}

#[test]
fn missing_memory_fences_the_slot() {
    let mut node = Node::new(2);
    let lost = killed(&mut node, 0);
    assert!(node.table.worker_gone(at(1), lost, false));
    assert_eq!(node.actions(1), [Action::Fence { slot: SlotId(0) }]);
    assert_eq!((node.state(lost), node.used(0)), (None, 200 * MIB));
    let request = LeaseRequest { slot: Some("cuda:0".into()), ..node.ask(1) };
    assert_eq!(node.refused(1, request).status, Status::Fenced);
    let other = node.lease(1, 1);
    assert_eq!(node.table.lease(other).unwrap().slot, SlotId(1));
}

#[test]
fn an_unanswered_kill_fences_the_slot() {
    let mut node = Node::new(1);
    let lost = killed(&mut node, 0);
    assert_eq!(node.table.next_deadline(), Some(at(30)));
    assert_eq!(node.actions(29), []);
    assert_eq!(node.actions(30), [Action::Fence { slot: SlotId(0) }]);
    assert_eq!(node.state(lost), None);
    assert_eq!(node.table.counters().fences, 1);
}

#[test]
fn a_fence_ends_the_leases_of_its_slot() {
    let mut node = Node::new(2);
    let [first, second] = [node.active(0, 100), node.active(0, 200)];
    let waiting = LeaseRequest { slot: Some("cuda:0".into()), wait: at(9), ..node.ask(900) };
    let waiting = node.queued(0, waiting);
    assert!(node.table.fence(at(1), SlotId(0)));
    assert!(!node.table.fence(at(1), SlotId(0)));
    let actions = node.actions(1);
    assert_eq!(actions[0], Action::Fence { slot: SlotId(0) });
    assert_eq!(actions[1], Action::StopAdmission { lease: first, cause: Cause::Fenced });
    let Action::Refused { request, refusal } = &actions[2] else { panic!("{actions:?}") };
    assert_eq!((*request, refusal.status), (waiting, Status::Fenced));
    assert_eq!(node.state(second), Some(LeaseState::Active));
    let refusal = node.table.authorize(at(1), first, 1).unwrap_err();
    assert_eq!(refusal.status, Status::Fenced);
    assert_eq!(node.actions(6), [Action::KillWorker { lease: first }]);
    assert_eq!(node.table.counters().fenced, 1);
}

#[test]
fn an_unfenced_slot_admits_again() {
    let mut node = Node::new(2);
    let lost = killed(&mut node, 0);
    node.table.worker_gone(at(1), lost, false);
    node.active(1, 900);
    let waiting = LeaseRequest { wait: at(30), ..node.ask(900) };
    let waiting = node.queued(1, waiting);
    node.actions(1);
    node.table.unfence(at(2), SlotId(0)).unwrap();
    assert!(admitted(&node.actions(2), waiting).is_some());
    assert!(!fenced(&node, 0));
    assert_eq!(node.used(0), 1000 * MIB);
}

#[test]
fn memory_that_comes_back_late_is_credited_once() {
    let mut node = Node::new(1);
    let lost = killed(&mut node, 0);
    node.actions(30);
    assert!(!node.table.worker_gone(at(31), lost, false));
    assert!(node.table.worker_gone(at(31), lost, true));
    assert!(!node.table.worker_gone(at(31), lost, true));
    assert_eq!(node.used(0), 0);
    assert!(fenced(&node, 0));
}

#[test]
fn waiting_requests_move_away_from_a_fenced_slot() {
    let mut node = Node::new(2);
    node.active(0, 500);
    node.active(0, 500);
    node.active(0, 100);
    let (tenant, class) = (Tenant::new("dora").unwrap(), Exclusivity::Device);
    let request = LeaseRequest { tenant, class, wait: at(99), ..node.ask(1) };
    let device = node.queued(0, request);
    // The request reserves the slot with one lease, cuda:1, so cuda:0 still has room.
    node.table.fence(at(1), SlotId(1));
    let small = node.ask(1);
    assert_eq!(node.refused(1, small).status, Status::CapacityExceeded);
    let leases: Vec<_> =
        node.table.leases().filter(|of| of.slot == SlotId(0)).map(|of| of.id).collect();
    node.actions(1);
    node.end(2, leases[0]);
    assert!(admitted(&node.end(2, leases[1]), device).is_some());
}

#[test]
fn unfence_does_not_cover_a_loss_that_the_same_call_finds() {
    let mut node = Node::new(1);
    killed(&mut node, 0);
    node.table.unfence(at(30), SlotId(0)).unwrap();
    assert_eq!(node.actions(30), [Action::Fence { slot: SlotId(0) }]);
    assert_eq!(node.used(0), 200 * MIB);
}
