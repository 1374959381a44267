//! Pipelines over a slow link: only the final await waits for a round trip, and no poll waits for the link.

use std::{
    future::Future,
    ops::ControlFlow,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use cuda_async::{Device, iterate, policy::StreamPoolRoundRobin, prelude::*, to_host, zip};
use futures::executor::block_on;

use crate::{kernels::Kernels, link::LinkProvider};

/// A round trip takes longer than a busy machine takes to submit everything. So the number of whole round trips in the
/// time of a pipeline is the number of those that it waits for.
const DELAY: Duration = Duration::from_secs(1);

/// The launches of one pipeline.
const LAUNCHES: usize = 50;

/// The launches of each of eight pipelines. QUIC sends about ten packets at once, and spreads more over a round trip.
const LAUNCHES_OF_EIGHT: usize = 8;
const ELEMENTS: usize = 64;

/// A device behind a slow link, and its kernels.
fn slow() -> (Device, Kernels) {
    let device = LinkProvider::new(DELAY).open_device();
    let kernels = Kernels::load(&device);
    (device, kernels)
}

/// Returns the output of a future, and the number of round trips that it takes.
fn with_round_trips<F: Future>(future: F) -> (F::Output, u128) {
    let start = Instant::now();
    let output = block_on(future);
    (output, start.elapsed().as_micros() / (2 * DELAY).as_micros())
}

/// Uploads zeros, adds `term` with each launch, and reads the result back.
fn pipeline(
    kernels: &Kernels,
    term: f32,
    launches: usize,
) -> impl DeviceOp<Output = Vec<f32>> + use<> {
    let kernels = kernels.clone();
    h2d(vec![0.0f32; ELEMENTS])
        .then(move |x| {
            iterate((x, launches), move |(x, left)| {
                kernels.add_scalar(x, term).map(move |x| match left {
                    1 => ControlFlow::Break(x),
                    _ => ControlFlow::Continue((x, left - 1)),
                })
            })
        })
        .then(|x| to_host(Arc::new(x)))
}

fn expected(term: f32, launches: usize) -> Vec<f32> {
    vec![term * launches as f32; ELEMENTS]
}

#[test]
fn upload_launches_and_read_back_take_one_round_trip() {
    let (device, kernels) = slow();
    let policy = StreamPoolRoundRobin::new(&device).unwrap();
    for _ in 0..2 {
        let pipeline = pipeline(&kernels, 1.0, LAUNCHES).schedule(&policy);
        assert_eq!(with_round_trips(pipeline.into_future()), (Ok(expected(1.0, LAUNCHES)), 1));
    }
}

#[test]
fn eight_pipelines_together_take_one_round_trip() {
    let (device, kernels) = slow();
    let policy = StreamPoolRoundRobin::new(&device).unwrap();
    let of = |term| pipeline(&kernels, term, LAUNCHES_OF_EIGHT);
    let all = zip!(of(1.0), of(2.0), of(3.0), of(4.0), of(5.0), of(6.0), of(7.0), of(8.0));
    let (all, trips) = with_round_trips(all.schedule(&policy).into_future());
    assert_eq!(trips, 1);
    let (a, b, c, d, e, f, g, h) = all.unwrap();
    let terms = (1..=8).map(|term| expected(term as f32, LAUNCHES_OF_EIGHT));
    assert!(terms.eq([a, b, c, d, e, f, g, h]));
}

/// A poll that waits for the link takes a round trip, two delays. The bound is one delay, so a busy machine keeps it.
#[test]
fn no_poll_waits_for_the_link() {
    let (device, kernels) = slow();
    let policy = StreamPoolRoundRobin::new(&device).unwrap();
    let mut longest = Duration::ZERO;
    let result = with_round_trips(async {
        let mut future = pin!(pipeline(&kernels, 1.0, LAUNCHES).schedule(&policy).into_future());
        std::future::poll_fn(|task: &mut Context<'_>| -> Poll<_> {
            let start = Instant::now();
            let polled = future.as_mut().poll(task);
            longest = longest.max(start.elapsed());
            polled
        })
        .await
    });
    assert_eq!(result, (Ok(expected(1.0, LAUNCHES)), 1));
    assert!(longest < DELAY, "a poll took {longest:?}");
}
