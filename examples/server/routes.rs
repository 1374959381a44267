//! The routes and their handlers.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::{get, post},
};
use cuda_async::Device;
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};

use crate::{
    batches::{Batches, Request, Scores},
    images,
    limits::Limits,
    metrics::{Metrics, Outcome},
    page,
    refusal::Refusal,
    state::Readiness,
};

/// The time for which `/metrics` waits for the device.
const DEVICE_REPLY: Duration = Duration::from_secs(1);

const NO_ROUTE: &str = "no such path or method; the server has GET / (a page to draw on), POST /classify, POST /scores, \
GET /metrics and GET /health";

/// The state of the handlers.
#[derive(Clone)]
struct Server {
    queue: mpsc::Sender<Request>,
    metrics: Metrics,
    readiness: Readiness,
    deadline: Duration,
    /// Locked while a thread queries the memory of the device. So a device that does not reply blocks at most one
    /// thread.
    asking: Arc<Mutex<()>>,
}

/// Returns the routes, and the receiving side of their queue. The server refuses requests until
/// [`run`](Batches::run) is called.
pub fn routes(limits: Limits) -> (Router, Batches) {
    let (queue, requests) = mpsc::channel(limits.queue.max(1));
    let (metrics, readiness) = (Metrics::new(), Readiness::default());
    let batches =
        Batches { requests, limits, metrics: metrics.clone(), readiness: readiness.clone() };
    let deadline = limits.deadline;
    let server = Server { queue, metrics, readiness, deadline, asking: Arc::default() };
    let router = Router::new()
        .route("/", get(page::page))
        .route("/classify", post(classify))
        .route("/scores", post(scores))
        .route("/metrics", get(metrics_text))
        .route("/health", get(health))
        .fallback(|| async { (StatusCode::NOT_FOUND, NO_ROUTE) })
        .method_not_allowed_fallback(|| async { (StatusCode::METHOD_NOT_ALLOWED, NO_ROUTE) })
        .with_state(server);
    (router, batches)
}

/// Classifies a JSON array of images. Each image is an array of 64 numbers from 0 to 16.
async fn classify(State(server): State<Server>, body: Body) -> Result<Json<Vec<usize>>, Refusal> {
    let digit = |scores: &Scores| {
        let best = (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        best.unwrap_or_default()
    };
    Ok(Json(server.scores(body).await?.iter().map(digit).collect()))
}

/// Returns the probabilities of the ten digits for each image.
async fn scores(State(server): State<Server>, body: Body) -> Result<Json<Vec<Scores>>, Refusal> {
    server.scores(body).await.map(Json)
}

impl Server {
    /// Answers a request and records its outcome. If the client closes the connection, hyper drops this future: the
    /// request then counts as cancelled, and its closed reply channel takes it out of its batch.
    async fn scores(&self, body: Body) -> Result<Vec<Scores>, Refusal> {
        let record = self.metrics.request();
        let answer = self.answer(body).await;
        record.end(match &answer {
            Ok(_) => Outcome::Answered,
            Err(refusal) => match refusal.status() {
                StatusCode::SERVICE_UNAVAILABLE => Outcome::Refused,
                StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => Outcome::TimedOut,
                status if status.is_client_error() => Outcome::Malformed,
                _ => Outcome::Failed,
            },
        });
        answer
    }

    async fn answer(&self, body: Body) -> Result<Vec<Scores>, Refusal> {
        let end = Instant::now() + self.deadline;
        self.readiness.device()?;
        let pixels = images::read(body, end).await?;
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(Request { pixels, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Refusal::QueueFull,
            mpsc::error::TrySendError::Closed(_) => Refusal::Closing,
        })?;
        let answer = timeout_at(end, answer).await.map_err(|_| Refusal::Late)?;
        answer.map_err(|_| Refusal::Closing)?.map_err(Refusal::Device)
    }

    /// Returns the memory in use of the device, or `None` if the device does not reply in time.
    async fn device_memory(&self, device: Device) -> Option<u64> {
        let asking = self.asking.clone().try_lock_owned().ok()?;
        let ask = tokio::task::spawn_blocking(move || {
            let memory = device.memory();
            drop(asking);
            memory
        });
        Some(timeout(DEVICE_REPLY, ask).await.ok()?.ok()?.ok()?.used)
    }
}

async fn metrics_text(State(server): State<Server>) -> Result<impl IntoResponse, StatusCode> {
    let metrics = &server.metrics;
    let waiting = server.queue.max_capacity() - server.queue.capacity();
    metrics.queue.set(waiting as i64);
    if let Ok(device) = server.readiness.device()
        && let Some(bytes) = server.device_memory(device).await
    {
        metrics.device_memory.set(bytes as i64);
    }
    let text = metrics.text().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text))
}

/// Replies with status 200 while the model is loaded and its device works.
async fn health(State(server): State<Server>) -> Result<String, Refusal> {
    server.readiness.device().map(|device| format!("ready, device {}\n", device.info().address))
}
