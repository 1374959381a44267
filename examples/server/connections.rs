//! HTTP connections, with limits on their number, their memory and their time.
//!
//! hyper's connection has a timer for the head of a request, which `axum::serve` cannot set. The time in which a client
//! takes a response is limited by `tokio-io-timeout`. The handlers limit the time to read a body.

use std::{
    convert::Infallible,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use prometheus_client::metrics::gauge::Gauge;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_io_timeout::TimeoutStream;

use crate::limits::{BUFFER, Limits};

/// The pause after an error of the listener, which may be a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The open connections of a server.
pub(crate) struct Connections {
    router: Router,
    limits: Limits,
    open: Gauge,
    /// Each task returns false if it had to close its connection during a request.
    tasks: JoinSet<bool>,
    /// Dropping the sender begins the shutdown of all connections.
    closing: watch::Sender<()>,
}

impl Connections {
    pub(crate) fn new(router: Router, limits: Limits, open: Gauge) -> Self {
        let (closing, _) = watch::channel(());
        Self { router, limits, open, tasks: JoinSet::new(), closing }
    }

    /// Accepts connections until the future is dropped. At the limit, further clients wait in the listener's backlog.
    pub(crate) async fn accept(&mut self, listener: TcpListener) -> Infallible {
        let places =
            Arc::new(Semaphore::new(self.limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
        loop {
            let place = places.clone().acquire_owned().await;
            while self.tasks.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    self.open.inc();
                    let open = Open(self.open.clone());
                    let (router, closing) = (self.router.clone(), self.closing.subscribe());
                    let limits = self.limits;
                    self.tasks.spawn(async move {
                        let ended = connection(stream, router, limits, closing).await;
                        drop((open, place));
                        ended
                    });
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Lets each connection finish its current request within the grace time, and closes it. Returns the number of
    /// connections that were closed during a request.
    pub(crate) async fn close(self) -> usize {
        let Self { router, mut tasks, closing, .. } = self;
        drop((router, closing));
        let mut cut = 0;
        while let Some(ended) = tasks.join_next().await {
            // A task that panicked has closed its connection.
            cut += usize::from(!ended.unwrap_or(false));
        }
        cut
    }
}

/// Counts an open connection. Dropping it decrements the count, also if the task panics.
struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Serves a connection. Returns false if the connection had to be closed during a request.
async fn connection(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    mut closing: watch::Receiver<()>,
) -> bool {
    // Without Nagle's algorithm, small responses are sent at once. A failure only makes them slower.
    _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(BUFFER);
    let io: TokioIo<Pin<Box<TimeoutStream<TcpStream>>>> = TokioIo::new(Box::pin(stream));
    let mut served = pin!(http.serve_connection(io, TowerToHyperService::new(router)));
    tokio::select! {
        // The errors of a connection concern its client only.
        _ = served.as_mut() => return true,
        () = sleep(limits.lifetime) => {}
        // Fails when the sender is dropped; no value is ever sent.
        _ = closing.changed() => {}
    }
    served.as_mut().graceful_shutdown();
    timeout(limits.grace, served).await.is_ok()
}
