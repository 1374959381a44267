//! Notices: whoever waits is told in the end, though only one notice is on its way at a time here.

use ::loom::thread;

use super::{
    backend::{Rig, nothing},
    block_on, check,
};

/// Two threads submit to one stream and wait for what they submitted, while a third delivers notices.
#[test]
fn everyone_who_waits_is_told() {
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
        assert!(rig.model.tokens().is_sorted_by(|one, next| one < next));
    });
}
