//! HTTP connections, with limits on their number and on their time, so that status clients leave the node its file
//! descriptors, and none keeps the others out.

use std::{pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

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

/// Serves connections until the future is dropped, which ends them.
pub(super) async fn serve(listener: TcpListener, routes: Router) {
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
