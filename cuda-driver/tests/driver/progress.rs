//! Reports of progress for work that ends well.

use std::{collections::HashMap, time::Duration};

use cuda_core::{
    LaunchConfig,
    protocol::{Control, StreamId, Submission, Ticket, Work},
};

use crate::{
    harness::{eventually, gpu, in_a_child},
    kernels::{SLOW_STORE, slow_store_params},
};

const ONE: LaunchConfig = LaunchConfig::new(1, 1);

#[test]
fn report_comes_after_the_work_that_it_covers() {
    let Some(gpu) = gpu() else { return };
    let (stream, other) = (gpu.stream(), gpu.stream());
    let to = gpu.upload(stream, &[0]);
    let store = gpu.kernel(SLOW_STORE);
    // Longer than the time after which streams are queried, which must find nothing wrong.
    let params = slow_store_params(5, 200_000_000);
    let slow = gpu.launch(stream, store, ONE, &params, &[(8, to)]).unwrap();
    gpu.want(slow).unwrap();
    let quick = gpu.run(other, Work::Join).unwrap();
    gpu.want(quick).unwrap();
    // Another test may hold up the second launch until the first has ended: then the reports come in this order.
    let first = gpu.progress();
    if first == quick {
        assert_eq!(gpu.progress(), slow);
    }
    // Nothing but the report orders this stream after the kernel.
    assert_eq!(gpu.download(other, to, 1), [5]);
    if first == slow {
        assert_eq!(gpu.progress(), quick);
    }
}

/// A free behind a stream's last work, after work of another stream, makes the stream wait for that one.
#[test]
fn free_behind_a_kernel_does_not_delay_its_report() {
    in_a_child("progress::child_free_behind_a_kernel");
}

#[test]
#[ignore = "looks at a running kernel: run by `free_behind_a_kernel_does_not_delay_its_report`"]
fn child_free_behind_a_kernel() {
    let Some(gpu) = gpu() else { return };
    let (long, short) = (gpu.stream(), gpu.stream());
    let (to, store) = (gpu.upload(long, &[0]), gpu.kernel(SLOW_STORE));
    let (from, shared) = (gpu.upload(short, &[0]), gpu.alloc(long, 64));
    let launch =
        |stream, ns, to| gpu.launch(stream, store, ONE, &slow_store_params(1, ns), &[(8, to)]);
    let longer = launch(long, 1_000_000_000, to).unwrap();
    let shorter = launch(short, 20_000_000, from).unwrap();
    gpu.want(shorter).unwrap();
    gpu.control(Control::Free { id: shared, stream: short, after: vec![longer] }).unwrap();
    assert_eq!(gpu.progress(), shorter);
    assert!(gpu.peek(long).unwrap() < longer.number, "the report waited for the long kernel");
    gpu.sync(long).unwrap();
}

#[test]
fn want_on_a_stream_that_is_already_idle_is_reported() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let ticket = gpu.run(stream, Work::Join).unwrap();
    gpu.sync(stream).unwrap();
    assert!(eventually(Duration::from_secs(1), || gpu.peek(stream) == Ok(ticket.number)));
    gpu.no_notice_within(Duration::from_millis(20));
    gpu.want(ticket).unwrap();
    assert_eq!(gpu.progress(), ticket);
}

#[test]
fn repeated_want_is_reported_once() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let ticket = gpu.run(stream, Work::Join).unwrap();
    for _ in 0..3 {
        gpu.want(ticket).unwrap();
    }
    assert_eq!(gpu.progress(), ticket);
    gpu.want(ticket).unwrap();
    gpu.no_notice_within(Duration::from_millis(100));
}

/// Far more wants than writes in flight: the last one is reported, and numbers never go back.
#[test]
fn wants_beyond_the_write_limit_are_reported_in_order() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    for _ in 0..300 {
        let ticket = gpu.run(stream, Work::Join).unwrap();
        gpu.want(ticket).unwrap();
    }
    let mut number = 0;
    while number < 300 {
        let progress = gpu.progress();
        assert!(progress.number > number, "{} after {number}", progress.number);
        number = progress.number;
    }
    gpu.no_notice_within(Duration::from_millis(100));
}

#[test]
fn every_stream_is_reported_to_its_end_from_many_threads() {
    let Some(gpu) = gpu() else { return };
    let (threads, each) = (4, 250);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let backend = &gpu.backend;
            let stream = StreamId(1000 + thread);
            scope.spawn(move || {
                let control = |control| {
                    // SAFETY: nothing is submitted to the stream after it is retired.
                    unsafe { backend.control(control) }.unwrap();
                };
                control(Control::CreateStream { id: stream, priority: 0 });
                for number in 1..=each {
                    let ticket = Ticket { stream, number };
                    let submission = Submission { ticket, after: &[], work: &Work::Join };
                    // SAFETY: touches no memory.
                    unsafe { backend.submit(&submission, &[]) }.unwrap();
                    control(Control::Want { ticket });
                }
                // Before its reports are out: they hold the stream.
                control(Control::RetireStream { id: stream });
            });
        }
    });
    let mut reported: HashMap<_, _> =
        (0..threads).map(|index| (StreamId(1000 + index), 0)).collect();
    while reported.values().any(|number| *number < each) {
        let Ticket { stream, number } = gpu.progress();
        let last = reported.insert(stream, number).unwrap();
        assert!(number >= last, "{stream:?}: {number} after {last}");
    }
}

#[test]
fn parked_completion_thread_wakes_for_a_want() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    for _ in 0..3 {
        let ticket = gpu.run(stream, Work::Join).unwrap();
        gpu.want(ticket).unwrap();
        assert_eq!(gpu.progress(), ticket);
        std::thread::sleep(Duration::from_millis(150));
    }
}
