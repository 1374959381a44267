//! Requests that are not answered: malformed, refused, late and cancelled ones.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{Request, StatusCode},
};
use futures::{StreamExt, poll, stream, try_join};
use server_example::{Limits, MAX_BODY_BYTES, routes};

use crate::{
    Result, client,
    server::{LIMITS, Server, classifier, get, images, metric, post, send, until_metric},
};

const FORM: &str = "send a JSON array of images, each an array of 64 numbers from 0 to 16";

fn outcome(name: &str) -> String {
    format!("digits_requests_total{{outcome=\"{name}\"}}")
}

#[tokio::test]
async fn malformed_requests_get_the_expected_form() -> Result {
    let (router, batches) = routes(LIMITS);
    let _batches = batches.run(classifier().await?);
    let (many, dark) = (images(0..65)?, format!("{:?}", [[17; 64]]));
    let empties = format!("[{}[]]", "[],".repeat(20_000));
    let large = format!("[{}]", " ".repeat(MAX_BODY_BYTES));
    let cases = [
        ("", StatusCode::BAD_REQUEST, "the body is not valid: EOF while parsing"),
        ("[[1, 2", StatusCode::BAD_REQUEST, "the body is not valid: EOF while parsing"),
        ("{}", StatusCode::BAD_REQUEST, "the body is not valid: invalid type: map"),
        ("[[-1]]", StatusCode::BAD_REQUEST, "the body is not valid: invalid value"),
        ("[]", StatusCode::UNPROCESSABLE_ENTITY, "the body has 0 images, the limit is 1 to 64"),
        (&many, StatusCode::UNPROCESSABLE_ENTITY, "the body has 65 images"),
        (&empties, StatusCode::UNPROCESSABLE_ENTITY, "the body has 20001 images"),
        ("[[1, 2]]", StatusCode::UNPROCESSABLE_ENTITY, "image 0 is not 64 numbers from 0 to 16"),
        (&dark, StatusCode::UNPROCESSABLE_ENTITY, "image 0 is not 64 numbers from 0 to 16"),
        (&large, StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 65536 bytes"),
    ];
    for path in ["/classify", "/scores"] {
        for (body, status, message) in &cases {
            let (got, text) = post(&router, path, (*body).to_owned()).await?;
            assert_eq!(got, *status, "{text}");
            assert!(text.starts_with(message) && text.ends_with(FORM), "{text}");
        }
    }
    assert_eq!(metric(&router, &outcome("malformed")).await?, 2.0 * cases.len() as f64);
    Ok(())
}

#[tokio::test]
async fn unknown_paths_and_methods_name_the_known_ones() -> Result {
    let (router, _batches) = routes(LIMITS);
    let (status, text) = get(&router, "/digits").await?;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.contains("POST /classify"), "{text}");
    let (status, text) = get(&router, "/classify").await?;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(text.contains("POST /classify"), "{text}");
    Ok(())
}

#[tokio::test]
async fn server_without_model_is_not_ready() -> Result {
    let (router, batches) = routes(LIMITS);
    assert_eq!(get(&router, "/health").await?.0, StatusCode::SERVICE_UNAVAILABLE);
    let (status, text) = post(&router, "/classify", images(0..1)?).await?;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text, "the model is being loaded: try again later");
    let _batches = batches.run(classifier().await?);
    assert_eq!(get(&router, "/health").await?, (StatusCode::OK, "ready, device cpu\n".into()));
    Ok(())
}

/// Waits until this number of requests is in the queue.
async fn queue_has(router: &axum::Router, requests: f64) -> Result {
    until_metric(router, "digits_queue_length", requests).await
}

/// No batch runs until the queue has refused a request.
#[tokio::test]
async fn full_queue_refuses_requests() -> Result {
    let (router, batches) = routes(Limits { queue: 2, ..LIMITS });
    let batches = batches.run(classifier().await?);
    let one = images(0..1)?;
    let refused = async {
        queue_has(&router, 2.0).await?;
        let (status, body) = post(&router, "/classify", one.clone()).await?;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body, "the queue is full: try again later");
        assert_eq!(metric(&router, &outcome("refused")).await?, 1.0);
        tokio::spawn(batches);
        Ok(())
    };
    let waiting = || post(&router, "/classify", one.clone());
    let (first, second, ()) = try_join!(waiting(), waiting(), refused)?;
    assert_eq!([first, second], [(StatusCode::OK, "[0]".into()), (StatusCode::OK, "[0]".into())]);
    queue_has(&router, 0.0).await
}

/// A part of a body that keeps a buffer alive, as those of hyper do. The references to `_alive` count the parts.
struct Part {
    _alive: Arc<()>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        b" "
    }
}

#[tokio::test]
async fn incomplete_body_keeps_no_buffers_alive() -> Result {
    let (router, batches) = routes(LIMITS);
    let _batches = batches.run(classifier().await?);
    let alive = Arc::new(());
    let part = alive.clone();
    let parts = (0..1000)
        .map(move |_| Ok::<_, Infallible>(Bytes::from_owner(Part { _alive: part.clone() })));
    let body = Body::from_stream(stream::iter(parts).chain(stream::pending()));
    let request = Request::post("/classify").body(body)?;
    let mut request = pin!(send(&router, request));
    assert!(poll!(request.as_mut()).is_pending());
    // Only the reference of this test is left: the stream has dropped its own with its last part.
    assert_eq!(Arc::strong_count(&alive), 1);
    Ok(())
}

/// The batches start when the deadline of the request has passed, and skip it.
#[tokio::test]
async fn late_answer_is_a_timeout() -> Result {
    let limits = Limits { deadline: Duration::from_millis(20), ..LIMITS };
    let (router, batches) = routes(limits);
    let batches = batches.run(classifier().await?);
    let (status, text) = post(&router, "/classify", images(0..1)?).await?;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(text, "no answer within the deadline of the request");
    assert_eq!(metric(&router, &outcome("timed_out")).await?, 1.0);
    let (metrics, batches) = (router.clone(), tokio::spawn(batches));
    drop(router);
    until_metric(&metrics, "digits_dropped_total", 1.0).await?;
    assert_eq!(metric(&metrics, "digits_batch_requests_count").await?, 0.0);
    drop(metrics);
    Ok(batches.await??)
}

/// Two of three requests are cancelled in the queue. The batch then has one.
#[tokio::test]
async fn cancelled_requests_do_not_go_to_the_device() -> Result {
    let (router, batches) = routes(LIMITS);
    let batches = batches.run(classifier().await?);
    let one = images(0..1)?;
    let mut kept = pin!(post(&router, "/classify", one.clone()));
    {
        let (first, second) =
            (post(&router, "/classify", one.clone()), post(&router, "/classify", one.clone()));
        let (mut first, mut second) = (pin!(first), pin!(second));
        assert!(poll!(first.as_mut()).is_pending());
        assert!(poll!(kept.as_mut()).is_pending());
        assert!(poll!(second.as_mut()).is_pending());
        queue_has(&router, 3.0).await?;
    }
    assert_eq!(metric(&router, &outcome("cancelled")).await?, 2.0);
    tokio::spawn(batches);
    assert_eq!(kept.await?, (StatusCode::OK, "[0]".into()));
    assert_eq!(metric(&router, "digits_dropped_total").await?, 2.0);
    assert_eq!(metric(&router, "digits_batch_requests_count").await?, 1.0);
    assert_eq!(metric(&router, "digits_batch_requests_sum").await?, 1.0);
    Ok(())
}

/// The batch waits until it has two requests. The client of the first one closes its connection.
#[tokio::test]
async fn request_of_a_closed_connection_does_not_go_to_the_device() -> Result {
    let limits = Limits { batch: 2, wait: LIMITS.deadline, ..LIMITS };
    let server = Server::start(limits).await?;
    let one = images(0..1)?;
    let mut client = client::Connection::open(server.address).await?;
    client.send(&client::text("POST /classify", "", &one)).await?;
    drop(client);
    server.until_metric(&outcome("cancelled"), 1.0).await?;
    let response = server.post("/classify", &one).await?;
    assert!(response.ends_with("[0]"), "{response}");
    let metrics = server.get("/metrics").await?;
    assert_eq!(client::value(&metrics, "digits_dropped_total")?, 1.0);
    assert_eq!(client::value(&metrics, "digits_batch_requests_sum")?, 1.0);
    Ok(())
}
