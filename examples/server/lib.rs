//! A server that classifies handwritten digits. It collects HTTP requests into batches for the device. The program is
//! in `main.rs`, and the model is that of the example `digits`.

mod batches;
mod metrics;

use std::{io, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::{get, post},
};
use cuda_async::Error;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

use batches::{Request, run_batches};
use examples::digits::{Model, PIXELS};
use metrics::Metrics;

/// The maximum number of images in a request.
const MOST_IMAGES: usize = 64;

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of requests that wait for a batch. A request that finds the queue full gets status 503.
    pub queue: usize,
    /// The maximum number of requests in a batch.
    pub batch: usize,
    /// The time for which the first request of a batch waits for others.
    pub wait: Duration,
    /// The maximum time from request to response. After that, the response has status 504.
    pub deadline: Duration,
}

/// The state of the handlers.
#[derive(Clone)]
struct Server {
    queue: mpsc::Sender<Request>,
    metrics: Metrics,
    deadline: Duration,
}

/// Returns the routes, and a future that runs the batches until the routes are dropped and all requests are answered.
pub fn routes(model: Model, limits: Limits) -> (Router, impl Future<Output = ()> + Send) {
    let (queue, requests) = mpsc::channel(limits.queue.max(1));
    let metrics = Metrics::new();
    let batches = run_batches(model, requests, limits, metrics.clone());
    let server = Server { queue, metrics, deadline: limits.deadline };
    let router = Router::new()
        .route("/classify", post(classify))
        .route("/metrics", get(metrics_text))
        .with_state(server);
    (router, batches)
}

/// Serves until `shutdown` is ready and every started request is answered.
///
/// # Errors
/// Returns the error of the listener.
pub async fn serve(
    listener: TcpListener,
    model: Model,
    limits: Limits,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (router, batches) = routes(model, limits);
    let batches = tokio::spawn(batches);
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await?;
    Ok(batches.await?)
}

/// Classifies a JSON array of images. Each image is an array of 64 numbers from 0 to 16.
async fn classify(
    State(server): State<Server>,
    Json(images): Json<Vec<Vec<u8>>>,
) -> Result<Json<Vec<u32>>, (StatusCode, String)> {
    let start = Instant::now();
    let valid = |image: &Vec<u8>| image.len() == PIXELS && image.iter().all(|pixel| *pixel <= 16);
    if !(1..=MOST_IMAGES).contains(&images.len()) || !images.iter().all(valid) {
        let expected = format!("expected 1 to {MOST_IMAGES} images of 64 numbers from 0 to 16");
        return Err((StatusCode::UNPROCESSABLE_ENTITY, expected));
    }
    server.metrics.requests.inc();
    let (reply, answer) = oneshot::channel();
    if server.queue.try_send(Request { pixels: images.concat(), reply }).is_err() {
        server.metrics.refused.inc();
        return Err((StatusCode::SERVICE_UNAVAILABLE, "the queue is full: try again later".into()));
    }
    let answer = timeout(server.deadline, answer).await;
    server.metrics.latency.observe(start.elapsed().as_secs_f64());
    match answer {
        Ok(Ok(Ok(labels))) => Ok(Json(labels)),
        Ok(Ok(Err(error @ Error::TimedOut { .. }))) => {
            Err((StatusCode::GATEWAY_TIMEOUT, error.to_string()))
        }
        Ok(Ok(Err(error))) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
        Ok(Err(_)) => Err((StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down".into())),
        Err(late) => Err((StatusCode::GATEWAY_TIMEOUT, late.to_string())),
    }
}

async fn metrics_text(State(server): State<Server>) -> Result<impl IntoResponse, StatusCode> {
    let waiting = server.queue.max_capacity() - server.queue.capacity();
    server.metrics.queue.set(waiting as i64);
    let text = server.metrics.text().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0")], text))
}
