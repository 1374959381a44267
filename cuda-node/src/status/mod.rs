//! The status endpoints of a node, over HTTP: metrics, JSON and a page.
//!
//! | path | content |
//! |---|---|
//! | `/metrics` | OpenMetrics text |
//! | `/status.json` | the [`Snapshot`] as JSON |
//! | `/` | a page that shows the snapshot and reads it again each second |
//!
//! The endpoints only read, and show no tokens, keys or addresses of clients. They do show the names of tenants, so
//! `cuda-node` serves them only where its operator asks for it. The folder uses `metrics` and nothing else of the node.
//! [`serve`] answers each request from a snapshot that the supervisor makes.

use std::{
    future::Future,
    io,
    pin::pin,
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
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

use crate::metrics::{self, Snapshot, open_metrics};

/// The age up to which a snapshot serves further requests. It bounds the load of the lease table.
const MAX_AGE: Duration = Duration::from_millis(100);

/// The page may load its own script, style and data, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The maximum number of connections. Later ones wait.
const CONNECTIONS: usize = 64;

/// The time within which a client sends a request.
const REQUEST: Duration = Duration::from_secs(5);

/// The time after which a connection ends with the request that it serves.
const LIFETIME: Duration = Duration::from_secs(60);

/// The time in which a client reads that last reply.
const LAST_REPLY: Duration = Duration::from_secs(5);

/// The pause after an error of the listener, which may be a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

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

/// Serves the status endpoints on a bound socket, until the returned future is dropped. `snapshot` is called at most
/// ten times a second, for a request.
///
/// # Errors
/// The socket cannot be used by the runtime.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn serve(
    listener: std::net::TcpListener,
    snapshot: impl Fn() -> Snapshot + Send + Sync + 'static,
) -> io::Result<impl Future<Output = ()> + Send> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let source = Source { snapshot: Box::new(snapshot), latest: Mutex::default() };
    let page = |kind, text| get(move || async move { reply(kind, text) });
    let routes = Router::new()
        .route("/", page("text/html; charset=utf-8", include_str!("page/index.html")))
        .route("/page.js", page("text/javascript; charset=utf-8", include_str!("page/page.js")))
        .route("/page.css", page("text/css; charset=utf-8", include_str!("page/page.css")))
        .route("/metrics", get(text))
        .route("/status.json", get(json))
        .with_state(Arc::new(source));
    Ok(accept(listener, routes))
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

/// Serves connections until the future is dropped, which ends them. Limits on their number and on their time let status
/// clients leave the node its file descriptors, and let none keep the others out.
async fn accept(listener: TcpListener, routes: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    // The semaphore is never closed.
    while let Ok(place) = places.clone().acquire_owned().await {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let routes = routes.clone();
                connections.spawn(async move {
                    connection(stream, routes).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection to the status endpoints failed");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, routes: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(REQUEST);
    let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut served = pin!(served);
    if tokio::time::timeout(LIFETIME, served.as_mut()).await.is_ok() {
        return;
    }
    served.as_mut().graceful_shutdown();
    _ = tokio::time::timeout(LAST_REPLY, served).await;
}
