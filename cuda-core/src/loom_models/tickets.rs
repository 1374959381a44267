//! Tickets: submissions that use the same memory are ordered, from whichever threads they come. An allocation remembers
//! two readers here.

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

/// Each reader displaces the one before, perhaps while that is between its claim and its publication.
#[test]
fn writer_comes_after_three_readers() {
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

/// An edge for one use covers another use only if that was submitted by then.
#[test]
fn writers_and_readers_of_two_allocations_are_ordered() {
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

/// A submission names no ticket that is known to be complete.
#[test]
fn uses_of_a_synchronized_stream_stay_ordered() {
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

/// Whichever submission is refused, a later one comes after everything that the refused one displaced.
#[test]
fn order_is_kept_after_a_refused_submission() {
    for nth in 1..=4 {
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
            _ = read(&two, &memory);
            write(&two, &memory).unwrap();
            rig.model.check_order();
        });
    }
}

/// One reads on the stream that wrote the memory, and needs no lock for it, while the other enters the histories. A
/// later writer comes after both, also if one of them was refused.
#[test]
fn writer_waits_for_lock_free_and_locked_readers() {
    for nth in 0..=3 {
        check(None, move || {
            let rig = Rig::new();
            let [home, one, two] = [(); 3].map(|()| rig.stream());
            let memory = rig.memory(&home);
            if nth > 0 {
                rig.model.refuse(nth);
            }
            let reader = thread::spawn({
                let memory = memory.clone();
                move || [(); 2].map(|()| read(&home, &memory).is_ok())
            });
            _ = read(&one, &memory);
            reader.join().unwrap();
            write(&two, &memory).or_else(|_| write(&two, &memory)).unwrap();
            rig.model.check_order();
        });
    }
}

/// The one thread reads on the stream that wrote the memory, the other on another. The last to drop it frees it after
/// both.
#[test]
fn memory_that_two_streams_read_is_freed_after_both() {
    check(None, || {
        let rig = Rig::new();
        let [home, one] = [(); 2].map(|()| rig.stream());
        let memory = rig.memory(&home);
        let reader = thread::spawn({
            let memory = memory.clone();
            move || read(&home, &memory).map(|_| drop(memory)).unwrap()
        });
        read(&one, &memory).unwrap();
        drop(memory);
        reader.join().unwrap();
        rig.device.core().reclaim_memory();
        assert_eq!(rig.model.frees(), 1);
        rig.model.check_order();
    });
}

/// The refused writer displaced a writer. A reader that comes later is ordered after that one.
#[test]
fn refused_writer_restores_the_writer_that_it_displaced() {
    check(Some(4), || {
        let rig = Rig::new();
        let [home, one, two, three] = [(); 4].map(|()| rig.stream());
        let memory = lent(&rig, &home);
        write(&home, &memory.write()).unwrap();
        rig.model.refuse_on(&two);
        let writer = thread::spawn({
            let memory = memory.clone();
            move || {
                write(&two, &memory.write()).unwrap_err();
                two
            }
        });
        read(&one, &memory.read()).unwrap();
        let two = writer.join().unwrap();
        read(&three, &memory.read()).unwrap();
        write(&two, &memory.write()).unwrap();
        rig.model.check_order();
    });
}

/// Any thread may drop the last handle, and any thread may send the free.
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
        // On a stream where the memory may be freed at that moment.
        let bystander = thread::spawn({
            let two = two.clone();
            move || {
                write(&two, &other).unwrap();
                other
            }
        });
        read(&two, &memory).unwrap();
        drop(memory);
        rig.device.core().reclaim_memory();
        reader.join().unwrap();
        let other = bystander.join().unwrap();
        rig.device.core().reclaim_memory();
        assert_eq!(rig.model.frees(), 1);
        rig.model.check_order();
        drop(other);
    });
}
