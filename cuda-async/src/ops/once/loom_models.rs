//! loom runs the real thing: members that come, go and panic while work is done that needs two turns.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex as Plain, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::Waker,
};

use loom::{model::Builder, sync::Notify, thread};

use super::*;

type Pair = Member<Work, Result<u32, &'static str>>;

/// Pending at its first turn, when it gives its waker to a device; ended at the second.
struct Work {
    turns: Arc<AtomicUsize>,
    device: Arc<Device>,
}

/// Wakes whoever waits for it, once.
#[derive(Default)]
struct Device(Plain<Option<Waker>>, Asked);

struct Asked(Notify);

impl Default for Asked {
    fn default() -> Self {
        Self(Notify::new())
    }
}

impl Device {
    fn run(&self) {
        loop {
            // Apart from the `if`, which would hold the lock.
            let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(waker) = waker {
                return waker.wake();
            }
            self.1.0.wait();
        }
    }
}

struct Task(Notify);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

fn turn(work: Work, waker: &Waker) -> Result<Turn<Work, Result<u32, &'static str>>, (Work, ())> {
    if work.turns.fetch_add(1, Relaxed) > 0 {
        return Ok(Turn::Ended(Ok(7)));
    }
    *work.device.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    work.device.1.0.notify();
    Ok(Turn::Pending(work))
}

fn block_on(mut member: Pair) -> Result<u32, &'static str> {
    let task = Arc::new(Task(Notify::new()));
    let waker = Waker::from(task.clone());
    loop {
        match member.poll(&waker, turn) {
            Ok(Some(result)) => return result,
            _ => task.0.wait(),
        }
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 20_000;
    builder.check(model);
}

fn work() -> (Pair, Arc<AtomicUsize>, thread::JoinHandle<()>) {
    let (turns, device) = (Arc::<AtomicUsize>::default(), Arc::<Device>::default());
    let member =
        Member::new(Work { turns: turns.clone(), device: device.clone() }, || Err("broken"));
    (member, turns, thread::spawn(move || device.run()))
}

#[test]
fn two_members_get_the_result_of_one_run() {
    check(|| {
        let (member, turns, device) = work();
        let other = thread::spawn({
            let member = member.clone();
            move || block_on(member)
        });
        assert_eq!(block_on(member), Ok(7));
        assert_eq!(other.join().unwrap(), Ok(7));
        device.join().unwrap();
        assert_eq!(turns.load(Relaxed), 2);
    });
}

/// The one that goes may be the one whose turn it was, and the only one that was woken.
#[test]
fn a_member_that_goes_hands_on_the_wake() {
    check(|| {
        let (member, turns, device) = work();
        let gone = thread::spawn({
            let mut member = member.clone();
            move || _ = member.poll(Waker::noop(), turn)
        });
        assert_eq!(block_on(member), Ok(7));
        gone.join().unwrap();
        device.join().unwrap();
        assert_eq!(turns.load(Relaxed), 2);
    });
}

/// One that polls once and is then kept for ever, as by a task that waits for something else.
#[test]
fn a_member_that_stays_away_keeps_nobody_waiting() {
    check(|| {
        let (member, turns, device) = work();
        let kept = thread::spawn({
            let mut member = member.clone();
            move || {
                _ = member.poll(Waker::noop(), turn);
                member
            }
        });
        assert_eq!(block_on(member), Ok(7));
        drop(kept.join().unwrap());
        device.join().unwrap();
        assert_eq!(turns.load(Relaxed), 2);
    });
}

/// One whose turn could not be begun, and that goes away with its error.
#[test]
fn a_turn_that_cannot_be_begun_is_the_next_ones() {
    check(|| {
        let (member, turns, device) = work();
        let fails = thread::spawn({
            let mut member = member.clone();
            move || _ = member.poll(Waker::noop(), |work, _| Err((work, ())))
        });
        assert_eq!(block_on(member), Ok(7));
        fails.join().unwrap();
        device.join().unwrap();
        assert_eq!(turns.load(Relaxed), 2);
    });
}

#[test]
fn a_turn_that_panics_ends_it_for_all() {
    check(|| {
        let member = Member::new((), || Err("broken"));
        let other = thread::spawn({
            let member = member.clone();
            move || after_a_panic(member)
        });
        assert_eq!(after_a_panic(member), Err("broken"));
        assert_eq!(other.join().unwrap(), Err("broken"));
    });
}

/// The result, perhaps after a panic of its own.
fn after_a_panic(mut member: Member<(), Result<u32, &'static str>>) -> Result<u32, &'static str> {
    let task = Arc::new(Task(Notify::new()));
    let waker = Waker::from(task.clone());
    loop {
        match catch_unwind(AssertUnwindSafe(|| member.poll(&waker, panic))) {
            Ok(Ok(Some(result))) => return result,
            Ok(_) => task.0.wait(),
            Err(_) => {}
        }
    }
}

/// A panic that prints nothing.
fn panic(_: (), _: &Waker) -> Result<Turn<(), Result<u32, &'static str>>, ((), ())> {
    std::panic::resume_unwind(Box::new("on purpose"))
}
