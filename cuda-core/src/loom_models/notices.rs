//! Notices: reports of progress against submissions and waiters.

use ::loom::thread;

use super::{
    backend::{Rig, nothing},
    block_on, check,
};

/// Two threads submit to one stream and wait for their submissions, while a third delivers reports.
#[test]
fn all_waiters_of_a_stream_are_woken() {
    check(Some(2), || {
        let rig = Rig::new();
        let stream = rig.stream();
        let delivers = thread::spawn({
            let model = rig.model.clone();
            move || model.deliver()
        });
        let submit = |times| {
            let stream = stream.clone();
            move || {
                for _ in 0..times {
                    let number = nothing(&stream).unwrap().number;
                    let mut waiter = stream.waiter(number).unwrap();
                    block_on(|task| waiter.poll(task)).unwrap();
                }
            }
        };
        let other = thread::spawn(submit(2));
        submit(1)();
        other.join().unwrap();
        rig.model.close();
        delivers.join().unwrap();
        assert!(stream.in_flight() == 0);
    });
}

/// A report may come while the submission is still inside the backend, and may name a number that is too large.
#[test]
fn early_report_is_kept_and_completes_no_later_submission() {
    check(None, || {
        let rig = Rig::new();
        let stream = rig.stream();
        rig.model.report_eagerly(Some(5));
        let delivers = thread::spawn({
            let model = rig.model.clone();
            move || model.deliver()
        });
        let first = nothing(&stream).unwrap();
        rig.model.close();
        delivers.join().unwrap();
        assert_eq!(stream.outcome(first.number), Some(Ok(())));
        assert!(stream.in_flight() == 0);
        rig.model.report_eagerly(None);
        let second = nothing(&stream).unwrap();
        assert_eq!((stream.in_flight(), stream.outcome(second.number)), (1, None));
    });
}
