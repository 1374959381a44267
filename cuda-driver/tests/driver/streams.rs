//! Streams: order between them, and ids that name nothing.

use std::time::{Duration, Instant};

use cuda_core::{
    LaunchConfig,
    protocol::{Control, Error, Request, StreamId, Ticket, Work},
};

use crate::{
    harness::{gpu, in_a_child, start},
    kernels::{SLOW_STORE, slow_store_params},
};

const ONE: LaunchConfig = LaunchConfig::new(1, 1);

#[test]
fn cross_stream_read_waits_for_writer() {
    let Some(gpu) = gpu() else { return };
    let (producer, consumer) = (gpu.stream(), gpu.stream());
    let (from, to) = (gpu.upload(producer, &[1]), gpu.upload(producer, &[2]));
    let store = gpu.kernel(SLOW_STORE);
    for value in 10..20 {
        // Five milliseconds: without the wait the copy would be first.
        let params = slow_store_params(value, 5_000_000);
        let written = gpu.launch(producer, store, ONE, &params, &[(8, from)]).unwrap();
        let copy = Work::Copy { from: start(from), to: start(to), bytes: 4 };
        gpu.run_after(consumer, &[written], copy, &[]).unwrap();
        assert_eq!(gpu.download(consumer, to, 1), [value]);
    }
}

/// The first wait records the event behind both writes; the second wait uses that recording.
#[test]
fn one_recording_covers_two_tickets() {
    let Some(gpu) = gpu() else { return };
    let (producer, one, two) = (gpu.stream(), gpu.stream(), gpu.stream());
    let (a, b) = (gpu.upload(producer, &[0]), gpu.upload(producer, &[0]));
    let (to_one, to_two) = (gpu.upload(one, &[0]), gpu.upload(two, &[0]));
    let store = gpu.kernel(SLOW_STORE);
    for value in 1..10 {
        let params = slow_store_params(value, 2_000_000);
        let first = gpu.launch(producer, store, ONE, &params, &[(8, a)]).unwrap();
        let second = gpu.launch(producer, store, ONE, &params, &[(8, b)]).unwrap();
        for (consumer, after, from, to) in [(one, first, a, to_one), (two, second, b, to_two)] {
            let copy = Work::Copy { from: start(from), to: start(to), bytes: 4 };
            gpu.run_after(consumer, &[after], copy, &[]).unwrap();
        }
        assert_eq!(gpu.download(two, to_two, 1), [value]);
        assert_eq!(gpu.download(one, to_one, 1), [value]);
    }
}

#[test]
fn free_waits_for_readers_on_other_streams() {
    let Some(gpu) = gpu() else { return };
    let (home, reader) = (gpu.stream(), gpu.stream());
    let to = gpu.upload(reader, &[0]);
    let store = gpu.kernel(SLOW_STORE);
    let from = gpu.upload(home, &[7; 1 << 16]);
    // Delays the copy, so that without its wait the free would be first.
    gpu.launch(reader, store, ONE, &slow_store_params(0, 20_000_000), &[(8, to)]).unwrap();
    let copy = Work::Copy { from: start(from), to: start(to), bytes: 4 };
    let read = gpu.run(reader, copy).unwrap();
    gpu.control(Control::Free { id: from, stream: home, after: vec![read] }).unwrap();
    let other = gpu.alloc(home, 4 << 16);
    let fill = cuda_core::protocol::Pattern::Word(9);
    gpu.run(home, Work::Fill { to: start(other), pattern: fill, count: 1 << 16 }).unwrap();
    assert_eq!(gpu.download(reader, to, 1), [7]);
    gpu.sync(home).unwrap();
}

#[test]
fn ticket_of_an_unknown_stream_is_complete() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let gone = Ticket { stream: StreamId(u64::MAX), number: 5 };
    gpu.run_after(stream, &[gone], Work::Join, &[]).unwrap();
    gpu.sync(stream).unwrap();
}

#[test]
fn wait_for_a_ticket_that_was_not_submitted_is_an_error() {
    let Some(gpu) = gpu() else { return };
    let (stream, other) = (gpu.stream(), gpu.stream());
    let ticket = Ticket { stream: other, number: 1 };
    let refused = gpu.run_after(stream, &[ticket], Work::Join, &[]);
    assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{refused:?}");
    for refused in [gpu.want(ticket), gpu.block_until(ticket)] {
        assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{refused:?}");
    }
}

#[test]
fn peek_returns_completed_submissions_only() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    assert_eq!(gpu.peek(stream), Ok(0));
    let (to, store) = (gpu.upload(stream, &[0]), gpu.kernel(SLOW_STORE));
    let before = gpu.last(stream).number;
    assert_eq!(gpu.peek(stream), Ok(before));
    gpu.launch(stream, store, ONE, &slow_store_params(1, 50_000_000), &[(8, to)]).unwrap();
    assert!(gpu.peek(stream).unwrap() <= before);
    gpu.sync(stream).unwrap();
    assert_eq!(gpu.peek(stream), Ok(before + 1));
}

/// The caller's checkpoint was made before the other submission, so neither question waits for that one.
#[test]
fn block_until_does_not_wait_for_later_submissions() {
    in_a_child("streams::child_block_until_before_later_work");
}

#[test]
#[ignore = "looks at a running kernel: run by `block_until_does_not_wait_for_later_submissions`"]
fn child_block_until_before_later_work() {
    let Some(gpu) = gpu() else { return };
    let (stream, other) = (gpu.stream(), gpu.stream());
    let (to, store) = (gpu.upload(stream, &[0]), gpu.kernel(SLOW_STORE));
    let start_of = Instant::now();
    let launch = |ns| gpu.launch(stream, store, ONE, &slow_store_params(1, ns), &[(8, to)]);
    // By its checkpoint: a report was wanted before the long kernel was submitted.
    let first = launch(20_000_000).unwrap();
    gpu.want(first).unwrap();
    launch(1_000_000_000).unwrap();
    gpu.block_until(first).unwrap();
    assert!(gpu.peek(stream).unwrap() >= first.number);
    assert!(start_of.elapsed() < Duration::from_millis(700), "{:?}", start_of.elapsed());
    gpu.sync(stream).unwrap();
    // By the stream's event: another stream waits for the ticket.
    let begin = Instant::now();
    let second = launch(20_000_000).unwrap();
    gpu.run_after(other, &[second], Work::Join, &[]).unwrap();
    launch(1_000_000_000).unwrap();
    gpu.block_until(second).unwrap();
    assert!(begin.elapsed() < Duration::from_millis(700), "{:?}", begin.elapsed());
    gpu.sync(stream).unwrap();
}

/// Streams are created inside polls.
#[test]
fn new_streams_do_not_wait_for_a_kernel() {
    in_a_child("streams::child_new_streams_beside_a_kernel");
}

#[test]
#[ignore = "looks at a running kernel: run by `new_streams_do_not_wait_for_a_kernel`"]
fn child_new_streams_beside_a_kernel() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let (to, store) = (gpu.upload(stream, &[0]), gpu.kernel(SLOW_STORE));
    let params = slow_store_params(1, 2_000_000_000);
    let long = gpu.launch(stream, store, ONE, &params, &[(8, to)]).unwrap();
    for _ in 0..100 {
        gpu.stream();
    }
    assert!(gpu.peek(stream).unwrap() < long.number, "a new stream waited for the kernel");
    gpu.sync(stream).unwrap();
}

#[test]
fn block_until_an_earlier_ticket_without_checkpoint_or_event_ends() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let (to, store) = (gpu.upload(stream, &[0]), gpu.kernel(SLOW_STORE));
    let launch = || gpu.launch(stream, store, ONE, &slow_store_params(1, 1_000_000), &[(8, to)]);
    let first = launch().unwrap();
    launch().unwrap();
    gpu.block_until(first).unwrap();
    gpu.block_until(first).unwrap();
    gpu.sync(stream).unwrap();
}

#[test]
fn every_priority_creates_a_stream() {
    let Some(gpu) = gpu() else { return };
    for (id, priority) in [(100, i32::MIN), (101, -1), (102, 0), (103, i32::MAX)] {
        let id = StreamId(id);
        gpu.control(Control::CreateStream { id, priority }).unwrap();
        gpu.run(id, Work::Join).unwrap();
        gpu.sync(id).unwrap();
        let again = gpu.control(Control::CreateStream { id, priority });
        assert!(matches!(again, Err(Error::Misuse(_))), "{again:?}");
        gpu.control(Control::RetireStream { id }).unwrap();
        let gone = gpu.control(Control::RetireStream { id });
        assert!(matches!(gone, Err(Error::NoSuchObject { .. })), "{gone:?}");
        let gone = gpu.run(id, Work::Join);
        assert!(matches!(gone, Err(Error::NoSuchObject { .. })), "{gone:?}");
    }
}

/// A new stream starts at 0, also after others were retired.
#[test]
fn stream_after_a_retired_one_starts_at_zero() {
    let Some(gpu) = gpu() else { return };
    for _ in 0..100 {
        let stream = gpu.stream();
        assert_eq!(gpu.peek(stream), Ok(0));
        let ticket = gpu.run(stream, Work::Join).unwrap();
        gpu.want(ticket).unwrap();
        gpu.progress_to(ticket);
        gpu.control(Control::RetireStream { id: stream }).unwrap();
    }
}

#[test]
fn reset_error_gives_advice() {
    let Some(gpu) = gpu() else { return };
    let message = gpu.request(Request::Reset).unwrap_err().to_string();
    assert!(message.contains("restart the process"), "{message}");
}
