//! loom models: the completion thread against callers and a driver, the bookkeeping of reports, and the id cache
//! against itself. Here the cache has one slot, and a stream has at most one checkpoint in flight.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex as Plain, PoisonError},
    time::Duration,
};

use ::loom::thread;

use cuda_core::{
    internals::sync::{Condvar, Mutex, check_model},
    protocol::{Error, Notice, NoticeSink},
};

use super::{
    completion::{
        Checkpoint, Completion, Entry, ReportInbox, WatchedDevice, enqueue_checkpoint, pass, watch,
    },
    context::IdCache,
    streams::{CheckpointEvents, DriverStream, Passed},
};

/// A device that is never lost. Its driver passes checkpoints on a thread of its own.
#[derive(Default)]
struct Model {
    driver: Mutex<Driver>,
    came: Condvar,
}

#[derive(Default)]
struct Driver {
    checkpoints: VecDeque<(Passed, u64)>,
    closed: bool,
}

impl WatchedDevice for Model {
    fn lost(&self) -> Option<Error> {
        None
    }

    fn status(&self, _: &DriverStream) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    fn passed(&self, entry: &Entry) -> Result<Option<u64>, Error> {
        let completed = entry.stream.completed();
        Ok((completed >= entry.number).then_some(completed))
    }

    fn checkpoint(
        &self,
        stream: &DriverStream,
        number: u64,
        _: &mut CheckpointEvents,
    ) -> Option<Checkpoint> {
        self.driver.lock().checkpoints.push_back((stream.passed.clone(), number));
        self.came.notify_one();
        Some(Checkpoint::HostFunction)
    }
}

impl Model {
    fn close(&self) {
        self.driver.lock().closed = true;
        self.came.notify_one();
    }

    /// Carries out checkpoints in order until the model is closed.
    fn run(&self, carry_out: impl Fn(Passed, u64)) {
        loop {
            let mut driver = self.driver.lock();
            match driver.checkpoints.pop_front() {
                Some((passed, number)) => {
                    drop(driver);
                    carry_out(passed, number);
                }
                None if driver.closed => return,
                None => self.came.wait(&mut driver),
            }
        }
    }
}

/// The numbers that were reported.
#[derive(Default)]
struct Reported(Plain<Vec<u64>>);

// SAFETY: keeps notices and forwards none.
unsafe impl NoticeSink for Reported {
    unsafe fn notice(&self, notice: Notice) {
        let Notice::Progress { complete, .. } = notice else { panic!("{notice:?}") };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(complete);
    }
}

fn stream() -> Arc<DriverStream> {
    Arc::new(DriverStream::without_driver(1))
}

/// A caller wants reports of two submissions, while the driver works and the thread checks, sleeps or parks. Then the
/// backend is dropped. Both submissions are reported, in order.
fn every_want_is_reported(
    completion: Completion,
    carry_out: impl Fn(&Arc<ReportInbox>, Passed, u64) + Send + 'static,
) {
    let (inbox, stream, model) = (Arc::<ReportInbox>::default(), stream(), Arc::<Model>::default());
    let reported = Arc::<Reported>::default();
    let watcher = thread::spawn({
        let (inbox, reported, model) = (inbox.clone(), reported.clone(), model.clone());
        move || watch(&*model, completion, &inbox, &*reported)
    });
    let driver = thread::spawn({
        let (inbox, model) = (inbox.clone(), model.clone());
        move || model.run(|passed, number| carry_out(&inbox, passed, number))
    });
    for number in [1, 2] {
        stream.set_submitted(number);
        let enqueue = enqueue_checkpoint(&*model, &inbox, &stream);
        stream.reports.want(number, || stream.submitted(), enqueue);
    }
    inbox.close();
    watcher.join().unwrap();
    model.close();
    driver.join().unwrap();
    let reported = reported.0.lock().unwrap();
    assert!(reported.is_sorted() && reported.last() == Some(&2), "{reported:?}");
}

#[test]
fn host_function_wakes_the_completion_thread() {
    check_model(Some(2), || every_want_is_reported(Completion::HostFunction, host_function));
}

fn host_function(inbox: &Arc<ReportInbox>, passed: Passed, number: u64) {
    pass(inbox, &passed, number);
}

fn event(_: &Arc<ReportInbox>, passed: Passed, number: u64) {
    passed.raise(number);
}

#[test]
fn spinning_completion_thread_sees_the_number() {
    let spins = Completion::Polled { spin: Duration::from_micros(1) };
    check_model(Some(2), move || every_want_is_reported(spins, event));
}

#[test]
fn sleeping_completion_thread_sees_the_number() {
    check_model(Some(2), || {
        every_want_is_reported(Completion::Polled { spin: Duration::ZERO }, event)
    });
}

/// Two callers want different numbers. If the checkpoints do not cover both yet, the one in flight, when it is passed,
/// requests the next one.
#[test]
fn two_callers_share_the_checkpoints_in_flight() {
    check_model(None, || {
        let (stream, checkpoints) = (stream(), Arc::new(Plain::new(Vec::new())));
        stream.set_submitted(1);
        let caller = |number: u64| {
            let (stream, checkpoints) = (stream.clone(), checkpoints.clone());
            move || {
                let enqueue = |number, _: &mut CheckpointEvents| {
                    checkpoints.lock().unwrap().push(number);
                    true
                };
                stream.reports.want(number, || stream.submitted(), enqueue);
            }
        };
        let other = thread::spawn(caller(1));
        stream.set_submitted(2);
        caller(2)();
        other.join().unwrap();
        if !stream.reports.covers(2) {
            stream.reports.end(1);
            let enqueue = |number, _: &mut CheckpointEvents| {
                checkpoints.lock().unwrap().push(number);
                true
            };
            stream.reports.enqueue_due(|| stream.submitted(), enqueue);
        }
        assert!(stream.reports.covers(2));
        let checkpoints = checkpoints.lock().unwrap();
        assert!(checkpoints.is_sorted() && checkpoints.last() == Some(&2), "{checkpoints:?}");
    });
}

/// A caller wants a report while foreign code runs on the stream. No checkpoint reaches the stream meanwhile, and one
/// that was held back is enqueued afterwards.
#[test]
fn no_checkpoint_is_enqueued_during_a_foreign_call() {
    check_model(None, || {
        let (stream, capturing) = (stream(), Arc::new(Plain::new(false)));
        stream.set_submitted(1);
        let enqueue = |stream: &Arc<DriverStream>, capturing: &Arc<Plain<bool>>| {
            let (stream, capturing) = (stream.clone(), capturing.clone());
            move |_: u64, _: &mut CheckpointEvents| {
                let takes = !stream.is_foreign();
                assert!(!(takes && *capturing.lock().unwrap()));
                takes
            }
        };
        let caller = thread::spawn({
            let (stream, enqueue) = (stream.clone(), enqueue(&stream, &capturing));
            move || stream.reports.want(1, || stream.submitted(), enqueue)
        });
        stream.begin_foreign(enqueue(&stream, &capturing));
        *capturing.lock().unwrap() = true;
        thread::yield_now();
        *capturing.lock().unwrap() = false;
        let enqueues = enqueue(&stream, &capturing);
        drop(stream.end_foreign(&enqueues, &enqueues));
        caller.join().unwrap();
        assert!(stream.reports.enqueued() >= 1);
    });
}

/// A want beside the begin of a foreign call gets an entry before the call ends: the foreign code may wait for it.
#[test]
fn want_beside_the_begin_of_a_foreign_call_gets_an_entry() {
    check_model(None, || {
        let stream = stream();
        stream.set_submitted(1);
        let caller = thread::spawn({
            let stream = stream.clone();
            let enqueue = |_, _: &mut CheckpointEvents| true;
            move || stream.reports.want(1, || stream.submitted(), enqueue)
        });
        stream.begin_foreign(|_, _| true);
        caller.join().unwrap();
        assert!(stream.reports.covers(1));
    });
}

fn insert(cache: &IdCache, key: u64) {
    cache.insert([key, 0], [key * 3, key * 5]);
}

/// A value that is found belongs to its key.
fn look_up(cache: &IdCache, key: u64) {
    let found = cache.get([key, 0]);
    assert!(found.is_none_or(|value| value == [key * 3, key * 5]));
}

/// One id takes another's slot while both are looked up. The main thread writes and the other thread reads: loom
/// remembers one access to an atomic, and a read by the writer would hide an earlier read by the reader.
#[test]
fn lookup_beside_an_insert_returns_no_value_of_another_key() {
    check_model(None, || {
        let cache = Arc::new(IdCache::default());
        insert(&cache, 1);
        let reader = thread::spawn({
            let cache = cache.clone();
            move || {
                look_up(&cache, 1);
                look_up(&cache, 2);
            }
        });
        insert(&cache, 2);
        reader.join().unwrap();
    });
}

#[test]
fn evicted_id_is_not_found_beside_a_concurrent_insert() {
    check_model(Some(3), || {
        let cache = Arc::new(IdCache::default());
        insert(&cache, 1);
        let writer = thread::spawn({
            let cache = cache.clone();
            move || insert(&cache, 2)
        });
        cache.evict([1, 0]);
        assert_eq!(cache.get([1, 0]), None);
        writer.join().unwrap();
    });
}
