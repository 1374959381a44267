//! Clients that are slow, never read, or come in large numbers.

use std::time::Duration;

use server_example::{Limits, MAX_BODY_BYTES};

use crate::{
    Result,
    client::{self, Connection},
    server::{LIMITS, Server, images},
};

/// A limit that is reached soon.
const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn slow_body_is_a_timeout() -> Result {
    let server = Server::start(Limits { deadline: SHORT, ..LIMITS }).await?;
    let text = client::text("POST /classify", "", &images(0..1)?);
    let response = client::until_closed(server.address, &text[..text.len() - 5]).await?;
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert!(response.contains("the body did not arrive within the deadline"), "{response}");
    let timed_out = "digits_requests_total{outcome=\"timed_out\"}";
    server.until_metric(timed_out, 1.0).await
}

#[tokio::test]
async fn slow_head_closes_the_connection() -> Result {
    let server = Server::start(Limits { head: SHORT, ..LIMITS }).await?;
    for text in ["", "POST /classify HTTP/1.1\r\nHost:"] {
        let response = client::until_closed(server.address, text).await.unwrap_or_default();
        assert!(!response.starts_with("HTTP/1.1 200"), "{response}");
    }
    // The connection of the request itself is the only one.
    server.until_metric("digits_connections", 1.0).await
}

#[tokio::test]
async fn large_heads_and_bodies_are_refused() -> Result {
    let server = Server::start(LIMITS).await?;
    let header = format!("X-Long: {}\r\n", "x".repeat(1 << 20));
    let response = client::until_closed(server.address, &client::text("GET /", &header, "")).await;
    // The server may reset the connection before the client has read the response.
    let response = response.unwrap_or("HTTP/1.1 431 ".into());
    assert!(response.starts_with("HTTP/1.1 431 "), "{response}");

    let chunked = "POST /classify HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n";
    let spaces = " ".repeat(MAX_BODY_BYTES + 1);
    let body = format!("{chunked}{:x}\r\n{spaces}\r\n", spaces.len());
    let response = client::until_closed(server.address, &body).await?;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    Ok(())
}

#[tokio::test]
async fn text_that_is_not_http_is_a_bad_request() -> Result {
    let server = Server::start(LIMITS).await?;
    let response = client::until_closed(server.address, "good morning\r\n\r\n").await?;
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    Ok(())
}

/// The client sends requests until the server takes no more, because the client reads no response.
#[tokio::test]
async fn client_that_never_reads_is_disconnected() -> Result {
    let server = Server::start(Limits { write: SHORT, ..LIMITS }).await?;
    let mut client = Connection::open(server.address).await?;
    let requests = client::text("GET /", "", "").repeat(100);
    // The connection stays open in the client: only the server can end the writes.
    while client.send(&requests).await.is_ok() {}
    server.until_metric("digits_connections", 1.0).await
}

/// The client reads all responses, and its connection ends between two of them.
#[tokio::test]
async fn old_connections_end_after_their_request() -> Result {
    let server = Server::start(Limits { lifetime: SHORT, ..LIMITS }).await?;
    let request = client::text("GET /health", "", "");
    let mut responses = 0;
    // On a slow machine a connection is old before its first request.
    while responses == 0 {
        let mut client = Connection::open(server.address).await?;
        while client.send(&request).await.is_ok()
            && let Some(response) = client.response().await?
        {
            assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
            responses += 1;
        }
    }
    Ok(())
}

#[tokio::test]
async fn clients_over_the_limit_wait_for_a_connection() -> Result {
    let server = Server::start(Limits { connections: 1, ..LIMITS }).await?;
    let (metrics, health) =
        (client::text("GET /metrics", "", ""), client::text("GET /health", "", ""));
    let mut first = Connection::open(server.address).await?;
    first.send(&health).await?;
    assert!(first.response().await?.is_some());
    let mut second = Connection::open(server.address).await?;
    second.send(&health).await?;
    for _ in 0..10 {
        first.send(&metrics).await?;
        let text = first.response().await?.ok_or("the connection is closed")?;
        assert_eq!(client::value(&text, "digits_connections")?, 1.0);
        assert!(!second.has_response());
    }
    drop(first);
    assert!(second.response().await?.is_some_and(|text| text.starts_with("HTTP/1.1 200 ")));
    Ok(())
}

/// The sums are those of the table in the documentation of the crate.
#[test]
fn memory_of_the_default_limits_is_documented() {
    let limits = Limits::default();
    assert_eq!(limits.host_bytes(2), 108_142_592);
    assert_eq!(limits.device_bytes(), 6_422_528);
}
