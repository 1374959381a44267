//! Recordings: a replay and the submissions of live handles are ordered, although no borrow excludes one while the
//! other is made.

use std::sync::Arc;

use ::loom::thread;

use super::{
    backend::{Rig, read, write},
    check,
};
use crate::{
    Access, Allocation, Result, Stream,
    handle::{Attached, Operand},
    internals::Recording,
    protocol::{Pattern, Work},
    sync::RwLock,
};

/// A recording that writes these allocations, in this order.
fn recorded(rig: &Rig, memory: &[&Arc<Allocation>]) -> Arc<Recording> {
    let stream = Recording::start(&rig.device, None).unwrap();
    memory.iter().for_each(|allocation| _ = write(&stream, allocation).unwrap());
    Arc::new(Recording::end(&stream).unwrap())
}

fn replaying(recording: &Arc<Recording>, stream: Stream) -> thread::JoinHandle<Result<()>> {
    let recording = recording.clone();
    thread::spawn(move || recording.replay(&stream).map(drop))
}

#[test]
fn replay_and_live_writer_are_ordered() {
    check(None, || {
        let rig = Rig::new();
        let [one, two] = [(); 2].map(|()| rig.stream());
        let memory = rig.memory(&one);
        let replay = replaying(&recorded(&rig, &[&memory]), one);
        write(&two, &memory).unwrap();
        read(&two, &memory).unwrap();
        replay.join().unwrap().unwrap();
        rig.model.check_order();
    });
}

#[test]
fn replays_of_two_recordings_are_ordered() {
    check(Some(4), || {
        let rig = Rig::new();
        let [one, two] = [(); 2].map(|()| rig.stream());
        let [a, b] = [(); 2].map(|()| rig.memory(&one));
        let replay = replaying(&recorded(&rig, &[&a, &b]), one);
        recorded(&rig, &[&b, &a]).replay(&two).unwrap();
        replay.join().unwrap().unwrap();
        rig.model.check_order();
    });
}

/// Both hold the turns of two allocations.
#[test]
fn replay_and_submission_of_two_operands_do_not_deadlock() {
    check(Some(4), || {
        let rig = Rig::new();
        let [one, two] = [(); 2].map(|()| rig.stream());
        let [a, b] = [(); 2].map(|()| rig.memory(&one));
        let replay = replaying(&recorded(&rig, &[&a, &b]), one);
        for [first, second] in [[&a, &b], [&b, &a]] {
            let operands =
                [first, second].map(|allocation| Operand::new(allocation, 0..1, Access::Write));
            // SAFETY: the device of the models has no memory.
            unsafe { two.submit(&Work::Join, &operands, Attached::default()) }.unwrap();
        }
        replay.join().unwrap().unwrap();
        rig.model.check_order();
    });
}

/// The reader may have looked for the mark before the recording set it. The recording reads too then.
#[test]
fn reader_that_submits_during_the_recording_is_ordered() {
    check(Some(4), || {
        let rig = Rig::new();
        let [one, two, three] = [(); 3].map(|()| rig.stream());
        let memory = Arc::new(RwLock::new(rig.memory(&one)));
        let other = rig.memory(&one);
        let reader = thread::spawn({
            let memory = memory.clone();
            move || read(&two, &memory.read()).map(drop)
        });
        let recording = {
            let stream = Recording::start(&rig.device, None).unwrap();
            write(&stream, &memory.write()).unwrap();
            write(&stream, &other).unwrap();
            Recording::end(&stream).unwrap()
        };
        recording.replay(&three).unwrap();
        write(&one, &memory.write()).unwrap();
        reader.join().unwrap().unwrap();
        rig.model.check_order();
    });
}

/// Whichever submission is refused, the other ones stay ordered.
#[test]
fn order_is_kept_after_a_refused_node() {
    for nth in 1..=3 {
        check(Some(3), move || {
            let rig = Rig::new();
            let [one, two] = [(); 2].map(|()| rig.stream());
            let [a, b] = [(); 2].map(|()| rig.memory(&one));
            let recording = recorded(&rig, &[&a, &b]);
            rig.model.refuse(nth);
            let replay = replaying(&recording, one);
            _ = write(&two, &a);
            _ = read(&two, &b);
            _ = replay.join().unwrap();
            write(&two, &b).unwrap();
            write(&two, &a).unwrap();
            rig.model.check_order();
        });
    }
}

/// The last owner of the memory is the recording.
#[test]
fn memory_of_a_recording_is_freed_after_its_replays() {
    check(Some(4), || {
        let rig = Rig::new();
        let [one, two] = [(); 2].map(|()| rig.stream());
        let memory = rig.memory(&one);
        let recording = recorded(&rig, &[&memory]);
        let replay = replaying(&recording, one);
        read(&two, &memory).unwrap();
        drop((memory, recording));
        replay.join().unwrap().unwrap();
        rig.device.core().reclaim_memory();
        assert_eq!(rig.model.frees(), 1);
        rig.model.check_order();
    });
}

/// The owner of the middle part of a buffer looks for the mark before the outer parts are recorded, so it takes no
/// turn. The launches of the recording name the whole buffer, with a gap. They are ordered after each other all the
/// same.
#[test]
fn launches_around_a_part_that_takes_no_turn_are_ordered() {
    check(Some(3), || {
        let rig = Rig::new();
        let [one, two, three] = [(); 3].map(|()| rig.stream());
        let memory = one.allocate(3).unwrap();
        memory.split([1, 2]).unwrap();
        let recorder = Recording::start(&rig.device, None).unwrap();
        let middle = thread::spawn({
            let memory = memory.clone();
            move || {
                let operand = Operand::new(&memory, 1..2, Access::Write);
                // A join, because the log of the model knows no parts.
                // SAFETY: the device of the models has no memory.
                unsafe { three.submit(&Work::Join, &[operand], Attached::default()) }.map(drop)
            }
        });
        let fill_at =
            |at| Work::Fill { to: memory.region(at), pattern: Pattern::Byte(0), count: 1 };
        for at in [0, 2] {
            let operand = Operand::new(&memory, at..at + 1, Access::Write);
            // SAFETY: the device of the models has no memory.
            unsafe { recorder.submit(&fill_at(at), &[operand], Attached::default()) }.unwrap();
        }
        drop(Recording::end(&recorder).unwrap());
        let launch = |stream: &Stream| {
            let operand = Operand::new(&memory, 0..3, Access::Write).with_gaps(true);
            // SAFETY: the device of the models has no memory.
            unsafe { stream.submit(&fill_at(0), &[operand], Attached::default()) }
        };
        launch(&one).unwrap();
        launch(&two).unwrap();
        middle.join().unwrap().unwrap();
        rig.model.check_order();
    });
}
