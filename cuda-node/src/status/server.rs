//! The routes of the status endpoints.

use std::{
    future::Future,
    io,
    net::TcpListener,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::State,
    http::{
        HeaderName, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse, Response},
    routing::get,
};
use parking_lot::Mutex;

use super::connections;
use crate::metrics::{self, Snapshot, open_metrics};

/// The age up to which a snapshot serves further requests. It bounds the load of the lease table.
const MAX_AGE: Duration = Duration::from_millis(100);

/// The page may load its own script, style and data, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Makes snapshots, and keeps the latest for a short time.
struct Source {
    snapshot: Box<dyn Fn() -> Snapshot + Send + Sync>,
    latest: Mutex<Option<(Instant, Snapshot)>>,
}

impl Source {
    fn get(&self) -> Snapshot {
        let mut latest = self.latest.lock();
        match &*latest {
            Some((at, snapshot)) if at.elapsed() < MAX_AGE => snapshot.clone(),
            _ => {
                let snapshot = (self.snapshot)();
                *latest = Some((Instant::now(), snapshot.clone()));
                snapshot
            }
        }
    }
}

/// Serves the status endpoints on a bound socket, until the returned future is dropped. `snapshot` is called at most ten
/// times a second, for a request.
///
/// # Errors
/// The socket cannot be used by the runtime.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn serve(
    listener: TcpListener,
    snapshot: impl Fn() -> Snapshot + Send + Sync + 'static,
) -> io::Result<impl Future<Output = ()> + Send> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let source = Source { snapshot: Box::new(snapshot), latest: Mutex::default() };
    let page = |kind, text| get(move || async move { reply(kind, text) });
    let routes = Router::new()
        .route("/", page("text/html; charset=utf-8", include_str!("page/index.html")))
        .route("/page.js", page("text/javascript; charset=utf-8", include_str!("page/page.js")))
        .route("/page.css", page("text/css; charset=utf-8", include_str!("page/page.css")))
        .route("/metrics", get(text))
        .route("/status.json", get(json))
        .with_state(Arc::new(source));
    Ok(connections::serve(listener, routes))
}

async fn text(State(source): State<Arc<Source>>) -> Response {
    match open_metrics(source.get()) {
        Ok(text) => reply(metrics::CONTENT_TYPE, text),
        Err(error) => failed(&error),
    }
}

async fn json(State(source): State<Arc<Source>>) -> Response {
    match serde_json::to_string(&source.get()) {
        Ok(text) => reply("application/json", text),
        Err(error) => failed(&error),
    }
}

fn reply(kind: &'static str, body: impl IntoResponse) -> Response {
    let headers: [(HeaderName, &str); 5] = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, body).into_response()
}

fn failed(error: &dyn std::error::Error) -> Response {
    tracing::error!(%error, "the status of the node cannot be written");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}
