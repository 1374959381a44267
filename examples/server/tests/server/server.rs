//! Servers of tests, with their routes alone or on a port.

use std::{net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use examples::digits::Digits;
use server_example::{Classifier, Limits, serve};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle, time::timeout};
use tower::ServiceExt;

use crate::{Result, client};

/// The longest wait for a state of the server. A test that waits longer has found a bug.
pub const LONG: Duration = Duration::from_secs(120);

/// Limits that no test reaches. A test that needs a limit overrides it.
pub const LIMITS: Limits = Limits {
    queue: 100,
    batch: 16,
    wait: Duration::from_millis(5),
    deadline: LONG,
    connections: 100,
    head: LONG,
    write: LONG,
    lifetime: Duration::from_secs(600),
    grace: LONG,
};

pub async fn classifier() -> Result<Classifier> {
    Ok(Classifier::open(Some("cpu".into())).await?)
}

/// Returns a request body with these rows of the data set.
pub fn images(rows: std::ops::Range<usize>) -> Result<String> {
    let digits = Digits::load()?;
    Ok(format!("{:?}", rows.map(|row| digits.image(row)).collect::<Vec<_>>()))
}

/// Sends a request to routes without a network.
pub async fn send(router: &Router, request: Request<Body>) -> Result<(StatusCode, String)> {
    let response = router.clone().oneshot(request).await?;
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await?;
    Ok((status, String::from_utf8(body.to_vec())?))
}

pub async fn get(router: &Router, path: &str) -> Result<(StatusCode, String)> {
    send(router, Request::get(path).body(Body::empty())?).await
}

pub async fn post(router: &Router, path: &str, body: String) -> Result<(StatusCode, String)> {
    send(router, Request::post(path).body(Body::from(body))?).await
}

/// Returns the value of a metric.
pub async fn metric(router: &Router, name: &str) -> Result<f64> {
    let (status, text) = get(router, "/metrics").await?;
    assert_eq!(status, StatusCode::OK);
    client::value(&text, name)
}

/// Waits until a metric has a value.
pub async fn until_metric(router: &Router, name: &str, expected: f64) -> Result {
    let waited = timeout(LONG, async {
        while metric(router, name).await? != expected {
            tokio::task::yield_now().await;
        }
        Ok(())
    });
    waited.await?
}

/// A server on a port of this machine.
pub struct Server {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<cuda_async::Result<usize>>,
}

impl Server {
    /// Starts a server on the CPU device, and waits until it is ready.
    pub async fn start(limits: Limits) -> Result<Self> {
        let classifier = classifier().await?;
        let server = Self::loading(limits, async { Ok(classifier) }).await?;
        server.until("/health", |response| response.starts_with("HTTP/1.1 200")).await?;
        Ok(server)
    }

    /// Starts a server that is ready when `load` is.
    pub async fn loading(
        limits: Limits,
        load: impl Future<Output = cuda_async::Result<Classifier>> + Send + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let shutdown = async { stopped.await.unwrap_or_default() };
        let task = tokio::spawn(serve(listener, limits, load, shutdown));
        Ok(Self { address, stop: Some(stop), task })
    }

    pub async fn get(&self, path: &str) -> Result<String> {
        Ok(client::request(self.address, &format!("GET {path}"), "").await?)
    }

    pub async fn post(&self, path: &str, body: &str) -> Result<String> {
        Ok(client::request(self.address, &format!("POST {path}"), body).await?)
    }

    /// Requests a path again and again until the response is as expected.
    pub async fn until(&self, path: &str, expected: impl Fn(&str) -> bool) -> Result {
        let waited = timeout(LONG, async {
            loop {
                // A limit of the test may end the request itself.
                if self.get(path).await.is_ok_and(|response| expected(&response)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        Ok(waited.await?)
    }

    /// Waits until a metric has a value.
    pub async fn until_metric(&self, name: &str, expected: f64) -> Result {
        self.until("/metrics", |text| {
            client::value(text, name).is_ok_and(|value| value == expected)
        })
        .await
    }

    /// Starts the shutdown.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the server has ended. Returns the number of connections that were closed during a request.
    pub async fn ended(self) -> Result<cuda_async::Result<usize>> {
        Ok(timeout(LONG, self.task).await??)
    }
}
