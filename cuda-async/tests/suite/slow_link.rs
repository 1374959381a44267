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

/// Longer than a busy machine takes to submit everything: otherwise the first reply arrives in the meantime, and later
/// frames count as dependent on it.
const DELAY: Duration = Duration::from_millis(500);
const LAUNCHES: usize = 100;
const ELEMENTS: usize = 64;

/// A device behind a slow link, and its kernels.
fn slow() -> (LinkProvider, Device, Kernels) {
    let link = LinkProvider::new(DELAY);
    let device = link.open_device();
    let kernels = Kernels::load(&device);
    (link, device, kernels)
}

/// Uploads zeros, adds `term` with each of [`LAUNCHES`] launches, and reads the result back.
fn pipeline(kernels: &Kernels, term: f32) -> impl DeviceOp<Output = Vec<f32>> + use<> {
    let kernels = kernels.clone();
    h2d(vec![0.0f32; ELEMENTS])
        .then(move |x| {
            iterate((x, LAUNCHES), move |(x, left)| {
                kernels.add_scalar(x, term).map(move |x| match left {
                    1 => ControlFlow::Break(x),
                    _ => ControlFlow::Continue((x, left - 1)),
                })
            })
        })
        .then(|x| to_host(Arc::new(x)))
}

fn expected(term: f32) -> Vec<f32> {
    vec![term * LAUNCHES as f32; ELEMENTS]
}

#[test]
fn upload_launches_and_read_back_take_one_round_trip() {
    let (link, device, kernels) = slow();
    let policy = StreamPoolRoundRobin::new(&device).unwrap();
    for _ in 0..2 {
        let before = link.round_trips();
        let result = block_on(pipeline(&kernels, 1.0).schedule(&policy).into_future());
        assert_eq!(result, Ok(expected(1.0)));
        assert_eq!(link.round_trips() - before, 1);
    }
}

#[test]
fn eight_pipelines_together_take_one_round_trip() {
    let (link, device, kernels) = slow();
    let policy = StreamPoolRoundRobin::new(&device).unwrap();
    let of = |term| pipeline(&kernels, term);
    let before = link.round_trips();
    let all = zip!(of(1.0), of(2.0), of(3.0), of(4.0), of(5.0), of(6.0), of(7.0), of(8.0));
    let (a, b, c, d, e, f, g, h) = block_on(all.schedule(&policy).into_future()).unwrap();
    assert_eq!(link.round_trips() - before, 1);
    let terms = (1..=8).map(|term| expected(term as f32));
    assert!(terms.eq([a, b, c, d, e, f, g, h]));
}

/// A poll that waits for the link takes a round trip, two delays. The bound is one delay, so a busy machine keeps it.
#[test]
fn no_poll_waits_for_the_link() {
    let (link, device, kernels) = slow();
    let policy = StreamPoolRoundRobin::new(&device).unwrap();
    let before = link.round_trips();
    let mut longest = Duration::ZERO;
    let result = block_on(async {
        let mut future = pin!(pipeline(&kernels, 1.0).schedule(&policy).into_future());
        std::future::poll_fn(|task: &mut Context<'_>| -> Poll<_> {
            let start = Instant::now();
            let polled = future.as_mut().poll(task);
            longest = longest.max(start.elapsed());
            polled
        })
        .await
    });
    assert_eq!(result, Ok(expected(1.0)));
    assert_eq!(link.round_trips() - before, 1);
    assert!(longest < DELAY, "a poll took {longest:?}");
}
