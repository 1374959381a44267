//! Tickets: whatever uses the same memory is in an order, from whichever threads it comes. An allocation
//! remembers one reader here.

use std::sync::Arc;

use ::loom::thread;

use super::{
    backend::{Rig, read, write},
    check,
};
use crate::{Allocation, Stream, sync::RwLock};

/// An allocation as users share it: many read, or one writes.
type Lent = Arc<RwLock<Arc<Allocation>>>;

fn lent(rig: &Rig, stream: &Stream) -> Lent {
    Arc::new(RwLock::new(rig.memory(stream)))
}

/// Each displaces the one before, perhaps while that is between its claim and its publication.
#[test]
fn three_readers_and_then_a_writer() {
    check(Some(3), || {
        let rig = Rig::new();
        let [home, one, two, three] = [(); 4].map(|()| rig.stream());
        let memory = rig.memory(&home);
        let readers = [one, two].map(|stream| {
            let memory = memory.clone();
            thread::spawn(move || read(&stream, &memory).unwrap())
        });
        read(&three, &memory).unwrap();
        readers.into_iter().for_each(|reader| _ = reader.join().unwrap());
        write(&home, &memory).unwrap();
        rig.model.check_order();
    });
}

/// What was recorded for one use covers another only if that was in by then.
#[test]
fn writers_and_readers_of_two_allocations() {
    check(Some(5), || {
        let rig = Rig::new();
        let [one, two] = [(); 2].map(|()| rig.stream());
        let [a, b] = [(); 2].map(|()| lent(&rig, &one));
        let writer = thread::spawn({
            let (a, b) = (a.clone(), b.clone());
            move || {
                write(&one, &a.write()).unwrap();
                write(&one, &b.write()).unwrap();
            }
        });
        read(&two, &a.read()).unwrap();
        read(&two, &b.read()).unwrap();
        write(&two, &a.write()).unwrap();
        writer.join().unwrap();
        rig.model.check_order();
    });
}

/// A stream that is known to be through need not be waited for.
#[test]
fn what_is_known_to_be_over_is_not_waited_for() {
    check(None, || {
        let rig = Rig::new();
        let [one, two] = [(); 2].map(|()| rig.stream());
        let memory = lent(&rig, &one);
        let writer = thread::spawn({
            let memory = memory.clone();
            move || {
                write(&one, &memory.write()).unwrap();
                one.synchronize().unwrap();
                read(&one, &memory.read()).unwrap();
            }
        });
        read(&two, &memory.read()).unwrap();
        write(&two, &memory.write()).unwrap();
        writer.join().unwrap();
        rig.model.check_order();
    });
}

/// Whichever enqueue is refused, a record, a wait or the use itself: whoever comes later waits for what could
/// not be waited for.
#[test]
fn a_refused_enqueue_loses_no_order() {
    for nth in 1..=7 {
        check(Some(4), move || {
            let rig = Rig::new();
            let [home, one, two, three] = [(); 4].map(|()| rig.stream());
            let memory = rig.memory(&home);
            write(&home, &memory).unwrap();
            rig.model.refuse(nth);
            let reader = thread::spawn({
                let memory = memory.clone();
                move || read(&one, &memory).is_ok()
            });
            _ = read(&two, &memory);
            reader.join().unwrap();
            _ = write(&three, &memory);
            write(&two, &memory).unwrap();
            rig.model.check_order();
        });
    }
}

/// Whoever drops it last, and whichever thread comes to free it: that is behind every use, and happens once.
#[test]
fn memory_is_freed_once_and_after_its_last_uses() {
    check(Some(4), || {
        let rig = Rig::new();
        let [one, two] = [(); 2].map(|()| rig.stream());
        let (memory, other) = (rig.memory(&one), rig.memory(&two));
        let reader = thread::spawn({
            let (memory, one) = (memory.clone(), one.clone());
            move || read(&one, &memory).map(|_| drop(memory)).unwrap()
        });
        // On a stream where it may be freed just then.
        let bystander = thread::spawn({
            let two = two.clone();
            move || {
                write(&two, &other).unwrap();
                other
            }
        });
        read(&two, &memory).unwrap();
        drop(memory);
        rig.device.inner().reclaim_memory();
        reader.join().unwrap();
        let other = bystander.join().unwrap();
        rig.device.inner().reclaim_memory();
        assert_eq!(rig.model.frees(), 1);
        rig.model.check_order();
        drop(other);
    });
}
