//! Sessions of session-exclusive leases.

use super::*;

fn session(node: &mut Node) -> LeaseId {
    let request = LeaseRequest { class: Exclusivity::Session, lease_secs: 3600, ..node.ask(50) };
    node.active_of(0, request)
}

fn run(lease: LeaseId) -> Action {
    Action::RunSession { lease }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn actions_at(node: &mut Node, now: u64) -> Vec<Action> {
    std::iter::from_fn(|| node.table.poll(millis(now))).collect()
}

#[test]
fn one_session_runs_and_the_others_wait_in_order() {
    let mut node = Node::new(1);
    let [a, b, c] = [session(&mut node), session(&mut node), session(&mut node)];
    for lease in [a, b, c] {
        assert!(node.table.session_busy(at(0), lease));
        assert!(!node.table.session_busy(at(0), lease));
    }
    assert_eq!(node.actions(0), [run(a)]);
    assert!(node.table.lease(a).unwrap().is_running);
    assert!(node.table.session_idle(millis(10), a));
    assert_eq!(actions_at(&mut node, 10), [run(b)]);
    assert!(node.table.session_idle(millis(20), b));
    assert_eq!(actions_at(&mut node, 20), [run(c)]);
    assert!(node.table.session_idle(millis(30), c));
    assert_eq!(actions_at(&mut node, 30), []);
    assert!(node.table.session_busy(millis(40), a));
    assert_eq!(actions_at(&mut node, 40), [run(a)]);
}

#[test]
fn a_session_is_paused_after_its_time_slice_if_another_waits() {
    let mut node = Node::new(1);
    let [a, b] = [session(&mut node), session(&mut node)];
    node.table.session_busy(at(0), a);
    assert_eq!(node.actions(0), [run(a)]);
    assert_eq!(node.actions(50), [], "no other session waits");
    node.table.session_busy(at(50), b);
    assert_eq!(node.table.next_deadline(), Some(millis(50_200)));
    assert_eq!(actions_at(&mut node, 50_199), []);
    assert_eq!(actions_at(&mut node, 50_200), [Action::PauseSession { lease: a }]);
    assert_eq!(actions_at(&mut node, 50_300), [], "the work of the first session is in flight");
    assert!(node.table.session_paused(millis(50_301), a));
    assert_eq!(actions_at(&mut node, 50_301), [run(b)]);
    assert_eq!(actions_at(&mut node, 50_501), [Action::PauseSession { lease: b }]);
    assert!(node.table.session_paused(millis(50_501), b));
    assert_eq!(actions_at(&mut node, 50_501), [run(a)]);
}

#[test]
fn sessions_of_two_slots_run_at_the_same_time() {
    let mut node = Node::new(2);
    let [a, b] = [session(&mut node), session(&mut node)];
    node.table.session_busy(at(0), a);
    node.table.session_busy(at(0), b);
    assert_eq!(node.actions(0), [run(a), run(b)]);
}

#[test]
fn a_killed_session_runs_until_its_worker_is_gone() {
    let mut node = Node::new(1);
    let [a, b] = [session(&mut node), session(&mut node)];
    node.table.session_busy(at(0), a);
    node.table.session_busy(at(0), b);
    node.actions(0);
    node.table.free(at(0), a).unwrap();
    let stop = Action::StopAdmission { lease: a, cause: Cause::Freed };
    assert_eq!(node.actions(0), [stop, Action::KillWorker { lease: a }]);
    assert_eq!(node.actions(1), [], "work of the first session may still run");
    node.table.worker_gone(at(2), a, true);
    assert_eq!(node.actions(2), [run(b)]);
}

/// A session that expires in its turn, and another one that waits for it.
fn expired_session_with_work() -> (Node, [LeaseId; 2]) {
    let mut node = Node::new(1);
    let request = LeaseRequest { class: Exclusivity::Session, ..node.ask(50) };
    let a = node.active_of(0, request);
    let b = session(&mut node);
    node.table.session_busy(at(59), a);
    node.actions(59);
    node.table.session_busy(at(60), b);
    assert!(matches!(node.actions(60)[..], [Action::StopAdmission { .. }]));
    (node, [a, b])
}

#[test]
fn the_next_session_runs_after_an_expired_one_is_idle() {
    let (mut node, [a, b]) = expired_session_with_work();
    assert!(node.table.session_idle(at(61), a));
    assert_eq!(node.actions(61), [run(b)]);
}

/// Work that was held in the worker when the time slice ended. The node has promised it the grace.
#[test]
fn work_of_an_expired_session_goes_on_in_a_later_turn_within_the_grace() {
    let (mut node, [a, b]) = expired_session_with_work();
    // The session pauses: its work on the device is complete, and its worker wants the turn for the rest.
    assert!(node.table.session_idle(at(61), a));
    assert!(node.table.session_busy(at(61), a), "the rest of the work never runs");
    assert_eq!(node.actions(61), [run(b)]);
    assert!(node.table.session_idle(at(62), b));
    assert_eq!(node.actions(62), [run(a)]);
}

#[test]
fn a_killed_session_leaves_the_run_queue() {
    let mut node = Node::new(1);
    let [a, b] = [session(&mut node), session(&mut node)];
    node.table.session_busy(at(0), a);
    node.table.session_busy(at(0), b);
    node.actions(0);
    node.table.free(at(0), b).unwrap();
    node.actions(0);
    node.table.session_idle(at(0), a);
    assert_eq!(node.actions(0), []);
}

#[test]
fn a_session_that_is_idle_before_the_poll_causes_no_action() {
    let mut node = Node::new(1);
    let [a, b] = [session(&mut node), session(&mut node)];
    node.table.session_busy(at(0), a);
    node.table.session_busy(at(0), b);
    assert!(node.table.session_idle(at(0), a));
    assert_eq!(node.actions(0), [run(b)]);
}

#[test]
fn a_fenced_slot_starts_no_session() {
    let mut node = Node::new(1);
    let [a, b] = [session(&mut node), session(&mut node)];
    node.table.session_busy(at(0), a);
    node.table.session_busy(at(0), b);
    node.table.free(at(0), a).unwrap();
    node.actions(0);
    node.table.worker_gone(at(0), a, false);
    assert!(!node.actions(0).contains(&run(b)));
    node.table.unfence(at(1), SlotId(0)).unwrap();
    assert_eq!(node.actions(1), [run(b)], "its work before the stop may complete in the grace");
}

#[test]
fn leases_of_other_classes_have_no_session() {
    let mut node = Node::new(1);
    let lease = node.active(0, 1);
    assert!(!node.table.session_busy(at(0), lease));
    assert!(!node.table.session_idle(at(0), lease));
    assert_eq!(node.actions(0), []);
}

#[test]
fn no_session_runs_before_its_worker_is_ready() {
    let mut node = Node::new(1);
    let request = LeaseRequest { class: Exclusivity::Session, ..node.ask(50) };
    let lease = node.lease_of(0, request);
    node.actions(0);
    assert!(!node.table.session_busy(at(0), lease));
    assert_eq!(node.actions(0), []);
}

#[test]
fn no_session_runs_before_all_sessions_of_an_earlier_node_are_idle() {
    let mut earlier = Node::new(1);
    let leases = [session(&mut earlier), session(&mut earlier), session(&mut earlier)];
    let mut node = Node::new(1);
    for lease in leases {
        let kept = earlier.table.kept(lease).unwrap();
        node.table.restore(at(0), kept, Duration::ZERO).unwrap();
    }
    let [a, b, c] = leases;
    node.table.session_busy(at(0), a);
    assert_eq!(node.actions(0), []);
    node.table.session_idle(at(0), b);
    // It has drained what it had, and more waits.
    node.table.session_idle(at(0), a);
    node.table.session_busy(at(0), a);
    assert_eq!(node.actions(0), []);
    // The client of the last one has not come back.
    node.table.worker_died(at(0), c, None);
    assert!(node.actions(0).contains(&Action::KillWorker { lease: c }));
    node.table.worker_gone(at(0), c, true);
    assert_eq!(node.actions(0), [run(a)]);
}
