//! Collects requests into batches, and builds the operation that classifies a batch.

use std::{pin::pin, sync::Arc, time::Duration};

use cuda_async::{Error, prelude::*};
use examples::digits::{CLASSES, Model, PIXELS};
use futures::{StreamExt, stream};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use crate::{
    classifier::Classifier,
    limits::{IN_FLIGHT, Limits},
    metrics::Metrics,
    state::Readiness,
};

/// The probabilities of the digits of an image.
pub(crate) type Scores = [f32; CLASSES];

/// A request in the queue.
pub(crate) struct Request {
    pub(crate) pixels: Vec<u8>,
    pub(crate) reply: oneshot::Sender<Result<Vec<Scores>, Error>>,
}

/// The receiving side of the queue.
pub struct Batches {
    pub(crate) requests: mpsc::Receiver<Request>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) readiness: Readiness,
}

impl Batches {
    /// Makes the server ready, and returns a future that runs batches until the routes are dropped and all requests are
    /// answered.
    ///
    /// # Errors
    /// The error that lost the device. The future then ends at once.
    pub fn run(
        self,
        classifier: Classifier,
    ) -> impl Future<Output = cuda_async::Result<()>> + Send {
        self.readiness.set_ready(classifier.device.clone());
        let readiness = self.readiness.clone();
        async move {
            let ended = run_batches(classifier, self.requests, self.limits, self.metrics).await;
            if let Err(error) = &ended {
                readiness.set_lost(error);
            }
            ended
        }
    }
}

// ANCHOR: batches
/// Runs batches until the queue is closed and empty, or the device is lost. A batch is created only when fewer than
/// [`IN_FLIGHT`] are on the device. Until then requests wait in the queue, and a full queue refuses further ones.
async fn run_batches(
    Classifier { model, streams, .. }: Classifier,
    requests: mpsc::Receiver<Request>,
    limits: Limits,
    metrics: Metrics,
) -> Result<(), Error> {
    let batches = stream::unfold((requests, metrics), move |(mut requests, metrics)| async move {
        Some((next_batch(&mut requests, limits, &metrics).await?, (requests, metrics)))
    });
    let ops = batches.map(|batch| answered(&model, batch, limits.deadline));
    let mut results = pin!(ops.schedule_buffer_unordered(&streams, IN_FLIGHT));
    while let Some(result) = results.next().await {
        if let Err(error) = result.flatten()
            && error.is_sticky()
        {
            return Err(error);
        }
    }
    Ok(())
}

/// Waits for a request, and then for further ones until the time limit. Drops the requests whose client is gone or
/// whose deadline has passed.
async fn next_batch(
    requests: &mut mpsc::Receiver<Request>,
    limits: Limits,
    metrics: &Metrics,
) -> Option<Vec<Request>> {
    loop {
        let mut batch = vec![requests.recv().await?];
        let end = Instant::now() + limits.wait;
        while batch.len() < limits.batch {
            let Ok(Some(request)) = timeout_at(end, requests.recv()).await else { break };
            batch.push(request);
        }
        let collected = batch.len();
        batch.retain(|request| !request.reply.is_closed());
        metrics.dropped.inc_by((collected - batch.len()) as u64);
        if !batch.is_empty() {
            metrics.batches.observe(batch.len() as f64);
            return Some(batch);
        }
    }
}

/// Runs the network on a batch and answers its requests, also if the device fails or the deadline passes.
fn answered(
    model: &Model,
    batch: Vec<Request>,
    deadline: Duration,
) -> impl DeviceOp<Output = Result<(), Error>> + use<> {
    let pixels: Vec<u8> = batch.iter().flat_map(|request| &request.pixels).copied().collect();
    let (layers, head) = (model.clone(), model.clone());
    h2d(pixels)
        .then(move |pixels| layers.logits(pixels))
        .then(move |logits| head.probabilities(Arc::new(logits)))
        .then(to_host)
        .named("batch")
        .timeout(deadline)
        .map(Ok)
        .or_else(|error| value(Err(error)))
        .map(|scores| answer(batch, scores))
}
// ANCHOR_END: batches

/// Sends each request its part of the scores, or the error.
fn answer(batch: Vec<Request>, scores: Result<Vec<f32>, Error>) -> Result<(), Error> {
    let (rows, _) = scores.as_deref().unwrap_or_default().as_chunks::<CLASSES>();
    let mut from = 0;
    for Request { pixels, reply } in batch {
        let images = from..from + pixels.len() / PIXELS;
        from = images.end;
        // A handler whose deadline has passed has dropped its receiver.
        _ = reply.send(scores.as_ref().map(|_| rows[images].to_vec()).map_err(Error::clone));
    }
    scores.map(drop)
}
