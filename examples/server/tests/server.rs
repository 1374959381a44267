//! The server over HTTP: answers, batches, limits and shutdown.

use std::{error::Error, net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode, header},
};
use examples::digits::{Digits, Model, Weights};
use futures::{future::try_join_all, try_join};
use server_example::{Limits, routes, serve};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::timeout,
};
use tower::ServiceExt;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const METRICS: &str = "GET /metrics HTTP/1.1";
const CLASSIFY: &str = "POST /classify HTTP/1.1";
const FULL: &str = "the queue is full: try again later";

const LIMITS: Limits = Limits {
    queue: 100,
    batch: 16,
    wait: Duration::from_millis(5),
    deadline: Duration::from_secs(60),
};

async fn model() -> Result<Model> {
    let device = tokio::task::spawn_blocking(cuda_async::default_device).await??;
    Ok(Model::upload(&device, &Weights::load()?)?.await?)
}

/// Returns a request body with these rows of the data set.
fn images(digits: &Digits, rows: std::ops::Range<usize>) -> String {
    format!("{:?}", rows.map(|row| digits.image(row)).collect::<Vec<_>>())
}

async fn send(router: &Router, request: Request<Body>) -> Result<(StatusCode, String)> {
    let response = router.clone().oneshot(request).await?;
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await?;
    Ok((status, String::from_utf8(body.to_vec())?))
}

async fn post(router: &Router, body: String) -> Result<(StatusCode, String)> {
    let request = Request::post("/classify").header(header::CONTENT_TYPE, "application/json");
    send(router, request.body(Body::from(body))?).await
}

/// Returns the value of a metric.
async fn metric(router: &Router, name: &str) -> Result<f64> {
    let (status, text) = send(router, Request::get("/metrics").body(Body::empty())?).await?;
    assert_eq!(status, StatusCode::OK);
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.ok_or(format!("no {name} in {text}"))?.parse()?)
}

#[tokio::test]
async fn requests_are_answered_in_batches() -> Result {
    let (router, batches) = routes(model().await?, LIMITS);
    let batches = tokio::spawn(batches);
    let digits = Digits::load()?;
    let requests = (0..64).map(|n| post(&router, images(&digits, 3 * n..3 * n + 1 + n % 3)));
    let mut right = 0;
    for (n, (status, body)) in try_join_all(requests).await?.into_iter().enumerate() {
        assert_eq!(status, StatusCode::OK, "{body}");
        let shown = &digits.labels()[3 * n..3 * n + 1 + n % 3];
        let read: Vec<u8> = body
            .trim_matches(['[', ']'])
            .split(',')
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()?;
        assert_eq!(read.len(), shown.len());
        right += usize::from(read == shown);
    }
    assert!(right >= 60, "{right} of 64");
    assert_eq!(metric(&router, "digits_requests_total").await?, 64.0);
    assert_eq!(metric(&router, "digits_latency_seconds_count").await?, 64.0);
    let ran = metric(&router, "digits_batches_total").await?;
    assert!((4.0..=16.0).contains(&ran), "{ran} batches");
    drop(router);
    Ok(batches.await?)
}

/// Waits until this number of requests is in the queue.
async fn queue_has(router: &Router, requests: f64) -> Result {
    while metric(router, "digits_queue_length").await? != requests {
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// No batch runs until the queue has refused a request.
#[tokio::test]
async fn full_queue_refuses_requests() -> Result {
    let (router, batches) = routes(model().await?, Limits { queue: 2, ..LIMITS });
    let digits = Digits::load()?;
    let refused = async {
        queue_has(&router, 2.0).await?;
        let (status, body) = post(&router, images(&digits, 0..1)).await?;
        assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, FULL));
        assert_eq!(metric(&router, "digits_refused_total").await?, 1.0);
        tokio::spawn(batches);
        Ok(())
    };
    let waiting = || post(&router, images(&digits, 0..1));
    let (first, second, ()) = try_join!(waiting(), waiting(), refused)?;
    assert_eq!([first, second], [(StatusCode::OK, "[0]".into()), (StatusCode::OK, "[0]".into())]);
    queue_has(&router, 0.0).await
}

/// The batches start when the deadline of the request has passed, and skip it.
#[tokio::test]
async fn late_answer_is_a_timeout() -> Result {
    let limits = Limits { deadline: Duration::from_millis(20), ..LIMITS };
    let (router, batches) = routes(model().await?, limits);
    let one = images(&Digits::load()?, 0..1);
    let (status, _) = post(&router, one.clone()).await?;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    let batches = tokio::spawn(batches);
    drop(router);
    Ok(batches.await?)
}

#[tokio::test]
async fn bad_requests_are_refused() -> Result {
    let (router, _batches) = routes(model().await?, LIMITS);
    for body in ["[]", "[[1, 2]]", "[[17]]"] {
        let (status, body) = post(&router, body.into()).await?;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(body, "expected 1 to 64 images of 64 numbers from 0 to 16");
    }
    let too_dark = format!("{:?}", [[17; 64]]);
    assert_eq!(post(&router, too_dark).await?.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(post(&router, "[[1, 2".into()).await?.0, StatusCode::BAD_REQUEST);
    Ok(())
}

/// Sends a request over a connection of its own and returns the response.
async fn over_tcp(server: SocketAddr, line: &str, body: &str) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(server).await?;
    let head = "Host: test\r\nConnection: close\r\nContent-Type: application/json";
    let request = format!("{line}\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    connection.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    connection.read_to_string(&mut response).await?;
    Ok(response)
}

/// The shutdown begins while a request waits in the queue for others.
#[tokio::test]
async fn shutdown_answers_requests_that_have_begun() -> Result {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let limits = Limits { wait: Duration::from_millis(300), ..LIMITS };
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { stopped.await.unwrap_or_default() };
    let server = tokio::spawn(serve(listener, model().await?, limits, shutdown));

    let body = images(&Digits::load()?, 0..2);
    let stopped = async {
        while !over_tcp(address, METRICS, "").await?.contains("digits_requests_total 1") {}
        assert!(stop.send(()).is_ok());
        Ok(())
    };
    let (response, ()) = try_join!(over_tcp(address, CLASSIFY, &body), stopped)?;
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert!(response.ends_with("[0,1]"), "{response}");
    timeout(Duration::from_secs(60), server).await???;
    assert!(over_tcp(address, METRICS, "").await.is_err());
    Ok(())
}
