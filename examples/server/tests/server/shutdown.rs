//! Start and shutdown.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use cuda_async::Error;
use futures::{future::try_join_all, try_join};
use server_example::Limits;
use tokio::sync::oneshot;

use crate::{
    Result,
    client::{self, Connection},
    server::{LIMITS, Server, classifier, images},
};

/// The shutdown begins while the server reads the body of a request.
#[tokio::test]
async fn shutdown_answers_requests_that_have_begun() -> Result {
    let mut server = Server::start(LIMITS).await?;
    let address = server.address;
    let mut client = Connection::open(address).await?;
    let text = client::text("POST /classify", "", &images(0..2)?);
    let (start, end) = text.split_at(text.len() - 5);
    client.send(start).await?;
    server.until_metric("digits_requests_in_progress", 1.0).await?;
    server.stop();
    while client::request(address, "GET /metrics", "").await.is_ok() {}
    client.send(end).await?;
    let response = client.response().await?.ok_or("no response")?;
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert!(response.ends_with("[0,1]"), "{response}");
    assert_eq!(server.ended().await??, 0);
    Ok(())
}

/// Clients send requests on kept connections before, during and after the shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_under_load_answers_or_closes() -> Result {
    let mut server = Server::start(LIMITS).await?;
    let (address, answered) = (server.address, Arc::new(AtomicUsize::new(0)));
    let request = client::text("POST /classify", "", &images(0..1)?);
    let clients = (0..16).map(|_| {
        let (request, answered) = (request.clone(), answered.clone());
        tokio::spawn(async move {
            let mut client = Connection::open(address).await?;
            // A response that ends too early is an error.
            while client.send(&request).await.is_ok()
                && let Some(response) = client.response().await?
            {
                let whole = response.starts_with("HTTP/1.1 200 ") && response.ends_with("[0]");
                assert!(whole, "{response}");
                answered.fetch_add(1, Relaxed);
            }
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        })
    });
    let clients: Vec<_> = clients.collect();
    while answered.load(Relaxed) < 100 {
        tokio::task::yield_now().await;
    }
    server.stop();
    for ended in try_join_all(clients).await? {
        ended?;
    }
    assert_eq!(server.ended().await??, 0);
    Ok(())
}

/// The batch waits for a second request that never comes.
#[tokio::test]
async fn grace_time_ends_the_shutdown() -> Result {
    let limits =
        Limits { batch: 2, wait: LIMITS.deadline, grace: Duration::from_millis(20), ..LIMITS };
    let mut server = Server::start(limits).await?;
    let mut client = Connection::open(server.address).await?;
    client.send(&client::text("POST /classify", "", &images(0..1)?)).await?;
    server.until_metric("digits_requests_in_progress", 1.0).await?;
    server.stop();
    assert_eq!(server.ended().await??, 1);
    assert_eq!(client.response().await?, None);
    Ok(())
}

#[tokio::test]
async fn server_is_ready_when_the_model_is_loaded() -> Result {
    let (loaded, load) = oneshot::channel();
    let load = async { load.await.map_err(Error::other) };
    let server = Server::loading(LIMITS, load).await?;
    let (health, answer) = (server.get("/health"), images(0..1)?);
    let (health, answer) = try_join!(health, server.post("/classify", &answer))?;
    for response in [health, answer] {
        assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
        assert!(response.contains("\r\nretry-after: 1\r\n"), "{response}");
        assert!(response.contains("the model is being loaded"), "{response}");
    }
    assert!(loaded.send(classifier().await?).is_ok());
    server.until("/health", |response| response.starts_with("HTTP/1.1 200 ")).await
}

#[tokio::test]
async fn failed_load_ends_the_server() -> Result {
    let server = Server::loading(LIMITS, async { Err(Error::other("no such model")) }).await?;
    let error = server.ended().await?.unwrap_err();
    assert_eq!(error.to_string(), "no such model");
    Ok(())
}
