//! `race`, `retry`.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use cuda_async::{
    BoxedOp, Device, Error, Retry,
    ops::Value,
    policy::{SingleStream, StreamPoolRoundRobin},
    prelude::*,
    race, retry, script, value, with_context,
};
use futures::executor::block_on;

use crate::{
    kernels::{Kernels, spun},
    on_every_device,
    polling::{
        concurrently, dropped_at_every_poll, iterations_for, memory_is_freed, own_devices,
        panics_in_second_poll,
    },
    wakes::in_time,
};

on_every_device! {
    race_is_won_by_the_first_to_end
    race_is_won_by_an_error
    racers_see_earlier_work_and_nothing_waits_for_losers
    no_racer_uses_the_stream_of_the_race
    many_races_end
    race_loser_writes_only_its_own_memory
    retry_ends_with_a_value
    retry_ends_with_the_last_error
    retry_follows_its_predicate
    retry_pauses
    timeout_ends_a_retry_without_pauses
    race_and_retry_are_refused_by_async_on
    panics_end_race_and_retry
    already_ended_of_the_program_is_an_error_like_others
}

const LONG: Duration = Duration::from_millis(300);

fn oom<T: Send>(_: T) -> Result<Op<Value<u32>>, Error> {
    Err(Error::OutOfMemory { requested: 1, free: 0, total: 1, pool: None })
}

fn race_is_won_by_the_first_to_end(device: &Device) {
    concurrently(device, || race_is_won_once(device));
}

fn race_is_won_once(device: &Device) {
    let (kernels, long) = (Kernels::load(device), iterations_for(device, LONG));
    let spin = |iterations: u32| {
        let kernels = kernels.clone();
        zeros::<u32>(32).then(move |out| kernels.spin(out, iterations)).map(move |_| iterations)
    };
    let stream = device.new_stream().unwrap();
    let policy = StreamPoolRoundRobin::new(device).unwrap();
    assert_eq!(race([spin(long), spin(1)]).sync_on(&stream), Ok(1));
    assert_eq!(race([spin(2), spin(long)]).sync_on(&stream), Ok(2));
    assert_eq!(block_on(race([spin(long), spin(3), spin(long)]).schedule(&policy)), Ok(3));
    assert_eq!(race!(value(5), spin(long), spin(long).map(|x| x)).sync_on(&stream), Ok(5));
    assert_eq!(race([spin(4)]).sync_on(&stream), Ok(4));
}

fn race_is_won_by_an_error(device: &Device) {
    let (kernels, long) = (Kernels::load(device), iterations_for(device, LONG));
    let slow = || zeros::<u32>(32).then(|out| kernels.spin(out, long)).map(|_| 0);
    let stream = device.new_stream().unwrap();
    let lost = race!(slow(), value(()).then(oom)).sync_on(&stream);
    assert!(matches!(lost, Err(Error::OutOfMemory { .. })), "{lost:?}");
    let empty = race(Vec::<BoxedOp<'static, u8>>::new()).sync_on(&stream);
    assert_eq!(
        empty.unwrap_err().to_string(),
        "`race`: the number of operations is 0 and must be at least 1; name one or more"
    );
}

fn racers_see_earlier_work_and_nothing_waits_for_losers(device: &Device) {
    concurrently(device, || nothing_waits_for_race_losers_once(device));
}

fn nothing_waits_for_race_losers_once(device: &Device) {
    let (kernels, long) = (Kernels::load(device), iterations_for(device, LONG));
    let (kernels, long) = (&kernels, &long);
    let op = |winner_is_first| {
        h2d(vec![3.0f32; 5000]).then(move |x| kernels.scale(x, 2.0)).then(move |x| {
            let slow = zeros::<u32>(32).then(move |out| kernels.spin(out, *long));
            let mut racers =
                vec![slow.map(|_| None).boxed(), kernels.add_scalar(x, 1.0).map(Some).boxed()];
            if winner_is_first {
                racers.reverse();
            }
            race(racers).then(|x| x.map(value).ok_or(Error::OutsideScript)).then(to_host)
        })
    };
    for winner_is_first in [false, true] {
        let stream = device.new_stream().unwrap();
        assert_eq!(op(winner_is_first).sync_on(&stream).unwrap(), [7.0; 5000]);
        assert!(stream.in_flight() == 0);
        let policy = SingleStream::from(stream.clone());
        assert_eq!(block_on(op(winner_is_first).schedule(&policy)).unwrap(), [7.0; 5000]);
        assert!(stream.in_flight() == 0);
    }
}

/// Otherwise later work would wait for a loser on that stream.
fn no_racer_uses_the_stream_of_the_race(device: &Device) {
    let stream = device.new_stream().unwrap();
    let id = || with_context(|cx| cx.enqueue(|stream| Ok(stream.id())).map(value));
    for racers in 1..=3 {
        let first = race((0..racers).map(|_| id())).sync_on(&stream).unwrap();
        assert_ne!(first, stream.id());
        // The other racers never end.
        let waiting = (1..racers).map(|_| script(|_| std::future::pending()).boxed());
        let last = race(waiting.chain([id().boxed()])).sync_on(&stream).unwrap();
        assert_ne!(last, stream.id());
    }
}

fn many_races_end(device: &Device) {
    let stream = device.new_stream().unwrap();
    let op = || race((0..30u32).map(|i| h2d(vec![i; 100]).then(to_host)));
    let first = zip!(op(), op()).sync_on(&stream).unwrap();
    assert!(first.0.len() == 100 && first.1.len() == 100);
}

/// The buffers of a loser are freed after its kernel, so no other operation gets them before.
fn race_loser_writes_only_its_own_memory(device: &Device) {
    let (kernels, long) = (Kernels::load(device), iterations_for(device, LONG / 10));
    let stream = device.new_stream().unwrap();
    for _ in 0..5 {
        let loser = zeros::<u32>(64).then(|out| kernels.spin(out, long)).map(drop);
        race!(loser, value(())).sync_on(&stream).unwrap();
        let fresh: Vec<_> = (0..8).map(|_| h2d(vec![9u32; 64]).sync_on(&stream).unwrap()).collect();
        device.synchronize().unwrap();
        for buffer in fresh {
            assert_eq!(to_host(buffer).sync_on(&stream).unwrap(), [9; 64]);
        }
    }
}

fn quickly(times: u32) -> Retry {
    Retry::times(times).backoff(Duration::from_millis(1), 1.5, Duration::from_millis(4))
}

/// Fails the first `n` times that it is made, and then computes a value.
fn fails_until<'a>(
    made: &'a AtomicU32,
    enough: u32,
    kernels: &Kernels,
) -> impl DeviceOp<Output = u32> + 'a {
    let (made, kernels) = (made.fetch_add(1, Ordering::SeqCst) + 1, kernels.clone());
    zeros::<u32>(32).then(move |out| kernels.spin(out, 9)).then(to_host).then(move |host| {
        assert_eq!(host, spun(32, 9));
        if made < enough { oom(()) } else { Ok(value(made)) }
    })
}

fn retry_ends_with_a_value(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let made = AtomicU32::new(0);
    assert_eq!(retry(quickly(3), || fails_until(&made, 4, &kernels)).sync_on(&stream), Ok(4));
    let policy = SingleStream::from(stream.clone());
    made.store(0, Ordering::SeqCst);
    let op = retry(quickly(9), || fails_until(&made, 4, &kernels)).map(|x| x + 1);
    assert_eq!(block_on(op.schedule(&policy)), Ok(5));
    let refused = AtomicU32::new(0);
    // A request that never fits is not tried again, unless the next try differs.
    let halve = || zeros::<u8>(1 << (52 - 32 * refused.fetch_add(1, Ordering::SeqCst)));
    assert!(retry(quickly(9), halve).sync_on(&stream).is_err());
    refused.store(0, Ordering::SeqCst);
    let out_of_memory = |error: &Error| matches!(error, Error::OutOfMemory { .. });
    let smaller = retry(quickly(9).when(out_of_memory), halve);
    assert!(smaller.map(|x| x.len()).sync_on(&stream).unwrap() <= 1 << 20);
}

fn retry_ends_with_the_last_error(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let made = AtomicU32::new(0);
    let op = retry(quickly(2), || fails_until(&made, 100, &kernels));
    assert!(matches!(op.sync_on(&stream), Err(Error::OutOfMemory { .. })));
    assert_eq!(made.load(Ordering::SeqCst), 3);
}

fn retry_follows_its_predicate(device: &Device) {
    let stream = device.new_stream().unwrap();
    let made = AtomicU32::new(0);
    let fails = || {
        made.fetch_add(1, Ordering::SeqCst);
        value(()).then(|()| Err::<Op<Value<u8>>, _>(Error::OutsideScript))
    };
    assert_eq!(retry(quickly(5), fails).sync_on(&stream), Err(Error::OutsideScript));
    assert_eq!(made.load(Ordering::SeqCst), 1);
    let mut seen = 0;
    let twice = quickly(5).when(|error| {
        seen += 1;
        *error == Error::OutsideScript && seen < 3
    });
    assert_eq!(retry(twice, fails).sync_on(&stream), Err(Error::OutsideScript));
    assert_eq!(made.load(Ordering::SeqCst), 4);
}

fn timeout_ends_a_retry_without_pauses(device: &Device) {
    let stream = device.new_stream().unwrap();
    let endless = || {
        let retries = Retry::times(u32::MAX).backoff(Duration::ZERO, 1.0, Duration::ZERO);
        let fails = || value(()).try_map(|()| Err::<(), _>(Error::OutsideScript));
        retry(retries.when(|_| true), fails).timeout(Duration::from_millis(20))
    };
    let policy = SingleStream::new(device).unwrap();
    in_time(move || {
        assert!(matches!(endless().sync_on(&stream), Err(Error::TimedOut { .. })));
        assert!(matches!(block_on(endless().schedule(&policy)), Err(Error::TimedOut { .. })));
    });
}

fn retry_pauses(device: &Device) {
    let stream = device.new_stream().unwrap();
    let start = Instant::now();
    let pause = Duration::from_millis(20);
    let op = retry(Retry::times(2).backoff(pause, 1.0, pause), || value(()).then(oom));
    assert!(op.sync_on(&stream).is_err());
    assert!(start.elapsed() >= 2 * pause);
}

fn race_and_retry_are_refused_by_async_on(device: &Device) {
    let stream = device.new_stream().unwrap();
    // SAFETY: nothing is submitted.
    unsafe {
        assert_eq!(
            race([value(1), value(2)]).async_on(&stream),
            Err(Error::needs_host_data("race"))
        );
        let op = retry(quickly(1), || value(1));
        assert_eq!(op.async_on(&stream), Err(Error::needs_host_data("retry")));
    }
}

#[test]
fn retry_does_not_hide_a_panic() {
    let mut op = retry(quickly(3).when(|_| true), panics_in_second_poll).into_future();
    assert!(catch_unwind(AssertUnwindSafe(|| block_on(&mut op))).is_err());
    assert_eq!(block_on(&mut op), Err(Error::AlreadyEnded));
}

/// The error is public: a closure may return it.
fn already_ended_of_the_program_is_an_error_like_others(device: &Device) {
    let stream = device.new_stream().unwrap();
    let ended = || value(()).then(|()| Err::<Op<Value<u32>>, _>(Error::AlreadyEnded));
    assert_eq!(ended().or_else(|_| value(7)).sync_on(&stream), Ok(7));
    assert_eq!(ended().named("first").or_else(|_| value(7)).sync_on(&stream), Ok(7));
    let waits = || zeros::<u32>(4).then(to_host).then(|_| ended());
    assert_eq!(block_on(waits().or_else(|_| value(8)).into_future()), Ok(8));
    let mut attempts = 0;
    let op = retry(quickly(3).when(|error| *error == Error::AlreadyEnded), || {
        attempts += 1;
        if attempts == 3 { value(9).boxed() } else { ended().boxed() }
    });
    assert_eq!(op.sync_on(&stream), Ok(9));
}

fn panics_end_race_and_retry(device: &Device) {
    let stream = device.new_stream().unwrap();
    let panicking = |_| -> u8 { panic!("on purpose") };
    // First in the list: the device may be done before the second one is polled.
    let op = race!(value(1).map(panicking), zeros::<u8>(4).then(to_host).map(|_| 1));
    assert!(catch_unwind(AssertUnwindSafe(|| op.sync_on(&stream))).is_err());
    let op = retry(quickly(3), || -> Op<Value<u8>> { panic!("on purpose") });
    assert!(catch_unwind(AssertUnwindSafe(|| op.sync_on(&stream))).is_err());
    assert_eq!(zeros::<u8>(3).then(to_host).sync_on(&stream).unwrap(), [0; 3]);
}

#[test]
fn race_and_retry_dropped_at_any_poll_leave_no_memory() {
    for device in own_devices() {
        let kernels = Kernels::load(&device);
        let before = device.memory().unwrap().used;
        let policy = SingleStream::new(&device).unwrap();
        dropped_at_every_poll(|| {
            let spin = |n| zeros::<u32>(n).then(|out| kernels.spin(out, 2000)).then(to_host);
            race([spin(64), spin(700)]).schedule(&policy)
        });
        let made = AtomicU32::new(0);
        dropped_at_every_poll(|| {
            made.store(0, Ordering::SeqCst);
            retry(quickly(9), || fails_until(&made, 3, &kernels)).schedule(&policy)
        });
        memory_is_freed(&device, before);
    }
}
