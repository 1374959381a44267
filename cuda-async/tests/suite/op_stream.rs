//! Streams of operations with a limit on those in flight.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use cuda_async::{
    Device, Error, Op,
    ops::Value,
    policy::{LeastLoaded, SingleStream},
    prelude::*,
    run::RunBuffered,
    value,
};
use futures::{
    Stream, StreamExt, TryStreamExt,
    executor::block_on,
    stream::{self, FusedStream},
};

use crate::{
    kernels::{Kernels, spun},
    on_every_device,
    polling::own_devices,
};

on_every_device! {
    buffered_results_are_in_order
    unordered_results_come_as_they_end
    no_more_than_the_limit_is_in_flight
    results_that_wait_for_their_turn_count_as_in_flight
    limit_of_zero_is_one
    stream_goes_on_after_an_error
    dropping_the_stream_drops_what_is_in_flight
    both_extension_traits_are_in_scope
}

fn policy(device: &Device) -> LeastLoaded {
    LeastLoaded::new(device).unwrap()
}

/// Spins longer the smaller `n` is, so that operations end in another order than they start.
fn spinning(kernels: &Kernels, n: u32, count: u32) -> impl DeviceOp<Output = u32> + use<> {
    let (kernels, iterations) = (kernels.clone(), 1 + (count - n) * 200);
    zeros::<u32>(32).then(move |out| kernels.spin(out, iterations)).then(to_host).map(move |v| {
        assert_eq!(v, spun(32, iterations));
        n
    })
}

fn buffered_results_are_in_order(device: &Device) {
    let (kernels, policy) = (Kernels::load(device), policy(device));
    for limit in [1, 3, 100] {
        let ops = stream::iter((0..40).map(|n| spinning(&kernels, n, 40)));
        let results: Vec<u32> =
            block_on(ops.schedule_buffered(&policy, limit).try_collect()).unwrap();
        assert_eq!(results, (0..40).collect::<Vec<_>>());
    }
}

/// The first operation ends when the test lets it end.
fn held_back(
    device: &Device,
    held: futures::channel::oneshot::Receiver<()>,
) -> impl Iterator<Item = impl DeviceOp<Output = u32> + use<>> {
    let (kernels, mut held) = (Kernels::load(device), Some(held));
    (0..20).map(move |n| {
        let (op, held) = (spinning(&kernels, n, 20), held.take());
        script(async move |cx| {
            if let Some(held) = held {
                held.await.unwrap();
            }
            cx.run(op).await
        })
    })
}

fn unordered_results_come_as_they_end(device: &Device) {
    let (end, held) = futures::channel::oneshot::channel();
    let policy = policy(device);
    let mut results = stream::iter(held_back(device, held)).schedule_buffer_unordered(&policy, 4);
    let others = block_on(results.by_ref().take(19).try_collect::<Vec<_>>()).unwrap();
    assert!(!others.contains(&0));
    end.send(()).unwrap();
    assert_eq!(block_on(results.try_next()).unwrap(), Some(0));
    assert_eq!(block_on(results.try_next()).unwrap(), None);
}

/// Counts the operations that exist.
#[derive(Clone, Default)]
struct Live(Arc<AtomicUsize>);

struct Guard(Live);

impl Live {
    fn guard(&self) -> Guard {
        self.0.fetch_add(1, SeqCst);
        Guard(self.clone())
    }

    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, SeqCst);
    }
}

/// An operation whose output holds a guard, so that a stored output counts as well.
fn guarded(
    kernels: &Kernels,
    live: &Live,
    n: u32,
    count: u32,
) -> impl DeviceOp<Output = (u32, Guard)> + use<> {
    let guard = live.guard();
    spinning(kernels, n, count).map(move |n| (n, guard))
}

/// Operations that check, when they are taken from the source, that fewer than `limit` exist.
fn counted(
    kernels: &Kernels,
    live: &Live,
    limit: usize,
    count: u32,
) -> impl Stream<Item = impl DeviceOp<Output = (u32, Guard)>> {
    stream::iter((0..count).map(move |n| {
        assert!(live.count() < limit, "{} of {limit} exist", live.count());
        guarded(kernels, live, n, count)
    }))
}

fn no_more_than_the_limit_is_in_flight(device: &Device) {
    let (kernels, policy, live) = (Kernels::load(device), policy(device), Live::default());
    for limit in [1, 4] {
        let mut most = 0;
        block_on(async {
            let mut results =
                pin!(counted(&kernels, &live, limit, 30).schedule_buffer_unordered(&policy, limit));
            let mut ended = 0;
            // The wrapper sees every poll.
            let each_poll = std::future::poll_fn(|task| {
                loop {
                    let polled = results.as_mut().poll_next(task);
                    most = most.max(live.count());
                    assert!(live.count() <= limit, "{} of {limit} exist", live.count());
                    match polled {
                        Poll::Ready(Some(result)) => {
                            drop(result.unwrap());
                            ended += 1;
                        }
                        Poll::Ready(None) => return Poll::Ready(()),
                        Poll::Pending => return Poll::Pending,
                    }
                }
            });
            each_poll.await;
            assert_eq!(ended, 30);
        });
        assert_eq!((most, live.count()), (limit, 0));
    }
}

fn results_that_wait_for_their_turn_count_as_in_flight(device: &Device) {
    let (policy, live) = (policy(device), Live::default());
    let (end, held) = futures::channel::oneshot::channel();
    let ops = held_back(device, held).map(|op| {
        let guard = live.guard();
        op.map(move |n| (n, guard))
    });
    let mut results = stream::iter(ops).schedule_buffered(&policy, 4);
    let mut task = Context::from_waker(Waker::noop());
    // Long enough for the other three to end.
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        assert!(results.poll_next_unpin(&mut task).is_pending());
        assert_eq!(live.count(), 4);
        assert_eq!(results.size_hint(), (20, Some(20)));
        std::thread::yield_now();
    }
    assert_eq!(format!("{results:?}"), "RunBuffered(4 of 4 in flight)");
    end.send(()).unwrap();
    let results: Vec<u32> = block_on(results.map_ok(|(n, _)| n).try_collect()).unwrap();
    assert_eq!((results, live.count()), ((0..20).collect(), 0));
}

fn limit_of_zero_is_one(device: &Device) {
    let (kernels, policy, live) = (Kernels::load(device), policy(device), Live::default());
    let ordered = counted(&kernels, &live, 1, 5).schedule_buffered(&policy, 0);
    let n = |result: Result<(u32, Guard), Error>| result.unwrap().0;
    assert_eq!(block_on(ordered.map(n).collect::<Vec<_>>()), [0, 1, 2, 3, 4]);
    let unordered = counted(&kernels, &live, 1, 5).schedule_buffer_unordered(&policy, 0);
    assert_eq!(block_on(unordered.map(n).collect::<Vec<_>>()), [0, 1, 2, 3, 4]);
}

fn stream_goes_on_after_an_error(device: &Device) {
    let policy = policy(device);
    let ops = || {
        stream::iter((0..9u32).map(|n| match n % 3 {
            // Fails when it is built, when it is submitted, and not at all.
            0 => Err(Error::OutsideScript),
            1 => Ok(zeros::<u8>(1 << 60).map(move |_| n).boxed()),
            _ => Ok(h2d([n]).then(to_host).map(|v| v[0]).boxed()),
        }))
    };
    let check = |results: Vec<Result<u32, Error>>| {
        assert_eq!(results.len(), 9);
        for (n, result) in (0..).zip(results) {
            match n % 3 {
                0 => assert_eq!(result, Err(Error::OutsideScript)),
                1 => assert!(matches!(result, Err(Error::OutOfMemory { .. })), "{result:?}"),
                _ => assert_eq!(result, Ok(n)),
            }
        }
    };
    check(block_on(ops().schedule_buffered(&policy, 4).collect()));
    let unordered: Vec<_> = block_on(ops().schedule_buffer_unordered(&policy, 4).collect());
    assert_eq!(unordered.iter().filter(|result| result.is_ok()).count(), 3);
    assert_eq!(unordered.len(), 9);
}

fn dropping_the_stream_drops_what_is_in_flight(device: &Device) {
    let (kernels, policy, live) = (Kernels::load(device), policy(device), Live::default());
    for taken in [0, 1, 7] {
        let mut results = counted(&kernels, &live, 4, 100).schedule_buffered(&policy, 4).boxed();
        let some = results.by_ref().take(taken).map_ok(|(n, _)| n).try_collect::<Vec<_>>();
        assert_eq!(block_on(some).unwrap(), (0..taken as u32).collect::<Vec<_>>());
        assert!(live.count() <= 4);
        _ = results.poll_next_unpin(&mut Context::from_waker(Waker::noop()));
        let before = Instant::now();
        drop(results);
        assert!(before.elapsed() < Duration::from_secs(1));
        assert_eq!(live.count(), 0);
    }
    let next = h2d([7u8]).then(to_host).schedule(&policy);
    assert_eq!(block_on(next).unwrap(), [7]);
}

/// `futures::StreamExt` and `TryStreamExt` have other names for their methods.
fn both_extension_traits_are_in_scope(device: &Device) {
    let policy = Arc::new(SingleStream::new(device).unwrap());
    let ops = || stream::iter((0..8u8).map(value));
    let doubled = ops().map(|op| op.map(|n| 2 * n)).schedule_buffered(policy.clone(), 2);
    assert_eq!(block_on(doubled.map_ok(|n| n + 1).try_collect::<Vec<_>>()).unwrap().len(), 8);
    let futures = ops().map(|op| op.into_future()).buffered(2);
    assert_eq!(block_on(futures.try_collect::<Vec<_>>()).unwrap().len(), 8);
}

#[test]
fn memory_of_a_dropped_stream_is_freed() {
    for device in own_devices() {
        let (kernels, policy) = (Kernels::load(&device), LeastLoaded::new(&device).unwrap());
        let before = device.memory().unwrap().used;
        let ops = stream::iter((0..100).map(|n| spinning(&kernels, n, 100)));
        let mut results = ops.schedule_buffered(&policy, 4);
        assert_eq!(block_on(results.try_next()).unwrap(), Some(0));
        drop(results);
        crate::polling::memory_is_freed(&device, before);
    }
}

#[test]
fn default_policy_runs_both_orders() {
    let ops = || stream::iter((0..30u32).map(|n| h2d([n]).then(to_host).map(|v| v[0])));
    let ordered: Vec<u32> = block_on(ops().run_buffered(4).try_collect()).unwrap();
    assert_eq!(ordered, (0..30).collect::<Vec<_>>());
    let mut unordered: Vec<u32> = block_on(ops().run_buffer_unordered(4).try_collect()).unwrap();
    unordered.sort();
    assert_eq!(unordered, ordered);
}

#[test]
fn source_that_is_pending_does_not_end_the_stream() {
    let (mut sender, ops) = futures::channel::mpsc::channel::<Op<Value<u32>>>(1);
    let mut results = ops.run_buffered(2);
    let mut task = Context::from_waker(Waker::noop());
    assert!(results.poll_next_unpin(&mut task).is_pending());
    assert!(!results.is_terminated());
    sender.try_send(value(1)).unwrap();
    assert_eq!(block_on(results.try_next()).unwrap(), Some(1));
    drop(sender);
    assert_eq!(block_on(results.try_next()).unwrap(), None);
    assert!(results.is_terminated());
    assert_eq!(block_on(results.try_next()).unwrap(), None);
}

/// Every operation gives one result, also one whose closure panicked; later results are not held back.
#[test]
fn stream_can_be_polled_after_a_panic() {
    let ops = || {
        stream::iter((0..6u32).map(|n| {
            value(n).map(|n| match n {
                2 => panic!("on purpose"),
                n => n,
            })
        }))
    };
    let results = |mut results: RunBuffered<_>| {
        let mut all = Vec::new();
        let mut panics = 0;
        loop {
            match catch_unwind(AssertUnwindSafe(|| block_on(results.next()))) {
                Ok(Some(result)) => all.push(result),
                Ok(None) => return (all, panics),
                Err(_) => panics += 1,
            }
        }
    };
    let (ordered, panics) = results(ops().run_buffered(3));
    let lost = Err(Error::Panicked { what: "an operation of the stream".into() });
    assert_eq!(ordered, [Ok(0), Ok(1), lost.clone(), Ok(3), Ok(4), Ok(5)]);
    assert_eq!(panics, 1);
    let (unordered, panics) = results(ops().run_buffer_unordered(3));
    assert_eq!((unordered.len(), panics), (6, 1));
    assert_eq!(unordered.iter().filter(|result| **result == lost).count(), 1);
}
