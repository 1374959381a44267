//! loom runs the real code: members that enter, leave and panic while work needs two polls.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex as Plain, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::Waker,
};

use cuda_core::internals::sync::check_model;
use loom::{sync::Notify, thread};

use super::*;

type Pair = Member<Work, Result<u32, &'static str>>;

/// Gives its waker to a device and is pending at its first poll. Ends at the second poll.
struct Work {
    polls: Arc<AtomicUsize>,
    device: Arc<Device>,
}

/// Wakes one waker, once.
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
            // A statement of its own: in the condition of the `if` it would hold the lock.
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

fn poll_work(
    work: Work,
    waker: &Waker,
) -> Result<Polled<Work, Result<u32, &'static str>>, (Work, ())> {
    if work.polls.fetch_add(1, Relaxed) > 0 {
        return Ok(Polled::Ended(Ok(7)));
    }
    *work.device.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    work.device.1.0.notify();
    Ok(Polled::Pending(work))
}

fn block_on(mut member: Pair) -> Result<u32, &'static str> {
    let task = Arc::new(Task(Notify::new()));
    let waker = Waker::from(task.clone());
    loop {
        match member.poll(&waker, poll_work) {
            Ok(Some(result)) => return result,
            _ => task.0.wait(),
        }
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    check_model(Some(3), model);
}

fn work() -> (Pair, Arc<AtomicUsize>, thread::JoinHandle<()>) {
    let (polls, device) = (Arc::<AtomicUsize>::default(), Arc::<Device>::default());
    let member =
        Member::new(Work { polls: polls.clone(), device: device.clone() }, || Err("broken"));
    (member, polls, thread::spawn(move || device.run()))
}

#[test]
fn two_members_get_the_result_of_one_run() {
    check(|| {
        let (member, polls, device) = work();
        let other = thread::spawn({
            let member = member.clone();
            move || block_on(member)
        });
        assert_eq!(block_on(member), Ok(7));
        assert_eq!(other.join().unwrap(), Ok(7));
        device.join().unwrap();
        assert_eq!(polls.load(Relaxed), 2);
    });
}

/// The member that leaves may have had the work and the only wake.
#[test]
fn dropped_member_passes_its_wake_to_another() {
    check(|| {
        let (member, polls, device) = work();
        let left = thread::spawn({
            let mut member = member.clone();
            move || _ = member.poll(Waker::noop(), poll_work)
        });
        assert_eq!(block_on(member), Ok(7));
        left.join().unwrap();
        device.join().unwrap();
        assert_eq!(polls.load(Relaxed), 2);
    });
}

/// A member that polls once and stays, as in a task that then waits for another event.
#[test]
fn member_that_stays_idle_does_not_block_others() {
    check(|| {
        let (member, polls, device) = work();
        let kept = thread::spawn({
            let mut member = member.clone();
            move || {
                _ = member.poll(Waker::noop(), poll_work);
                member
            }
        });
        assert_eq!(block_on(member), Ok(7));
        drop(kept.join().unwrap());
        device.join().unwrap();
        assert_eq!(polls.load(Relaxed), 2);
    });
}

/// A member whose poll could not begin, and that leaves with the error.
#[test]
fn turn_that_cannot_begin_goes_to_the_next_member() {
    check(|| {
        let (member, polls, device) = work();
        let fails = thread::spawn({
            let mut member = member.clone();
            move || _ = member.poll(Waker::noop(), |work, _| Err((work, ())))
        });
        assert_eq!(block_on(member), Ok(7));
        fails.join().unwrap();
        device.join().unwrap();
        assert_eq!(polls.load(Relaxed), 2);
    });
}

#[test]
fn turn_that_panics_ends_the_work_for_all() {
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

/// Polls until the result is there, and ignores its own panic.
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
fn panic(_: (), _: &Waker) -> Result<Polled<(), Result<u32, &'static str>>, ((), ())> {
    std::panic::resume_unwind(Box::new("on purpose"))
}
