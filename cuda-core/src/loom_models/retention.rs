//! Retention: a resource is released once, and not before the submissions that use it are complete.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use ::loom::thread;

use super::{
    backend::{Model, Rig, retaining},
    check,
};
use crate::{
    Ticket,
    handle::Keep,
    order::{
        Retain,
        timeline::{Retention, Timeline, Until},
    },
    protocol::StreamId,
};

/// A resource of a submission. Checks at its release that the device has completed the submission.
struct Used {
    model: Arc<Model>,
    by: Ticket,
    released: Arc<AtomicUsize>,
}

impl Retain for Used {}

impl Drop for Used {
    fn drop(&mut self) {
        assert!(self.model.complete(self.by.stream) >= self.by.number, "released too early");
        self.released.fetch_add(1, Relaxed);
    }
}

/// Each report may come as soon as the backend has the submission, and no second one comes.
#[test]
fn resources_are_released_by_reports_that_race_with_submissions() {
    check(Some(4), || {
        let rig = Rig::new();
        let stream = rig.stream();
        let released = Arc::<AtomicUsize>::default();
        rig.model.report_eagerly(Some(0));
        let delivers = thread::spawn({
            let model = rig.model.clone();
            move || model.deliver()
        });
        for number in [1, 2] {
            let by = Ticket { stream: stream.id(), number };
            let used = Used { model: rig.model.clone(), by, released: released.clone() };
            let keep = Keep { until: Until::Complete, resource: Arc::new(used) };
            assert_eq!(retaining(&stream, keep), Ok(by));
        }
        rig.model.close();
        delivers.join().unwrap();
        assert_eq!(released.load(Relaxed), 2);
    });
}

/// A resource that counts its release.
struct Counted(Arc<AtomicUsize>);

impl Retain for Counted {}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Retains a resource while another thread reports its submission complete. No further report comes.
#[test]
fn resource_of_an_earlier_submission_is_released() {
    check(None, || {
        let timeline = Timeline::new(StreamId(1), 0, true);
        let ticket = timeline.reserve();
        timeline.publish(ticket.number);
        let completes = thread::spawn({
            let timeline = timeline.clone();
            move || timeline.advance(1)
        });
        let released = Arc::<AtomicUsize>::default();
        timeline.retain_until(1, Arc::new(Counted(released.clone())));
        completes.join().unwrap();
        assert_eq!(released.load(Relaxed), 1);
        assert!(timeline.retention.is_empty());
    });
}

/// The source of an upload and the target of a download, while another submission is made.
#[test]
fn resources_are_released_while_others_are_retained() {
    check(None, || {
        let released = [(); 3].map(|()| Arc::<AtomicUsize>::default());
        let counts = || [0, 1, 2].map(|at| released[at].load(Relaxed));
        let retention = Arc::new(Retention::default());
        let keep = |number: u64, until| {
            let counted = Arc::new(Counted(released[number as usize - 1].clone()));
            retention.keep(number, until, counted);
        };
        keep(1, Until::Complete);
        keep(2, Until::Accepted);
        let reports = thread::spawn({
            let retention = retention.clone();
            move || {
                retention.release_accepted(2);
                retention.release(1);
            }
        });
        keep(3, Until::Complete);
        reports.join().unwrap();
        assert_eq!(counts(), [1, 1, 0]);
        assert!(!retention.is_empty());
        retention.release(3);
        assert_eq!(counts(), [1, 1, 1]);
        assert!(retention.is_empty());
    });
}
