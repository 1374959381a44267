//! Collects requests into batches, and builds the operation that classifies a batch.

use std::{pin::pin, sync::Arc, time::Duration};

use cuda_async::{Error, prelude::*};
use futures::{StreamExt, stream};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use crate::{Limits, metrics::Metrics};
use examples::digits::{Model, PIXELS};

/// The maximum number of batches on the device.
const IN_FLIGHT: usize = 4;

/// A request in the queue.
pub(super) struct Request {
    pub(super) pixels: Vec<u8>,
    pub(super) reply: oneshot::Sender<Result<Vec<u32>, Error>>,
}

// ANCHOR: batches
/// Runs batches until the queue is closed and empty. A batch is created only when fewer than [`IN_FLIGHT`] are on the
/// device. Until then requests wait in the queue, and a full queue refuses further ones.
pub(super) async fn run_batches(
    model: Model,
    requests: mpsc::Receiver<Request>,
    limits: Limits,
    metrics: Metrics,
) {
    let batches = stream::unfold(requests, |mut requests| async move {
        Some((next_batch(&mut requests, limits).await?, requests))
    });
    let ops = batches.map(|batch| answered(&model, batch, limits.deadline));
    let mut results = pin!(ops.run_buffer_unordered(IN_FLIGHT));
    while results.next().await.is_some() {
        metrics.batches.inc();
    }
}

/// Waits for a request, and then for further ones until the time limit.
async fn next_batch(
    requests: &mut mpsc::Receiver<Request>,
    limits: Limits,
) -> Option<Vec<Request>> {
    let mut batch = vec![requests.recv().await?];
    let end = Instant::now() + limits.wait;
    while batch.len() < limits.batch {
        let Ok(Some(request)) = timeout_at(end, requests.recv()).await else { break };
        batch.push(request);
    }
    Some(batch)
}

/// Runs the network on a batch and answers its requests, also if the device fails or the deadline passes.
fn answered(
    model: &Model,
    mut batch: Vec<Request>,
    deadline: Duration,
) -> impl DeviceOp<Output = ()> + use<> {
    batch.retain(|request| !request.reply.is_closed()); // its deadline has passed
    let pixels: Vec<u8> = batch.iter().flat_map(|request| &request.pixels).copied().collect();
    let (layers, head) = (model.clone(), model.clone());
    h2d(pixels)
        .then(move |pixels| layers.logits(pixels))
        .then(move |logits| head.labels(Arc::new(logits)))
        .then(to_host)
        .named("batch")
        .timeout(deadline)
        .map(Ok)
        .or_else(|error| value(Err(error)))
        .map(|labels| answer(batch, labels))
}
// ANCHOR_END: batches

/// Sends each request its part of the labels, or the error.
fn answer(batch: Vec<Request>, labels: Result<Vec<u32>, Error>) {
    let mut from = 0;
    for Request { pixels, reply } in batch {
        let images = from..from + pixels.len() / PIXELS;
        from = images.end;
        // A handler whose deadline has passed has dropped its receiver.
        _ = reply.send(labels.as_ref().map(|labels| labels[images].to_vec()).map_err(Error::clone));
    }
}
