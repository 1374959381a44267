//! Answers, batches and metrics of the routes, without a network.

use axum::http::StatusCode;
use examples::digits::Digits;
use futures::future::try_join_all;
use server_example::routes;

use crate::{
    Result,
    server::{LIMITS, classifier, get, images, metric, post},
};

const ANSWERED: &str = "digits_requests_total{outcome=\"answered\"}";

fn numbers<T: std::str::FromStr>(text: &str) -> Vec<T> {
    text.split(['[', ']', ',']).filter_map(|number| number.parse().ok()).collect()
}

#[tokio::test]
async fn requests_are_answered_in_batches() -> Result {
    let (router, batches) = routes(LIMITS);
    let batches = tokio::spawn(batches.run(classifier().await?));
    let digits = Digits::load()?;
    let rows = |n: usize| 3 * n..3 * n + 1 + n % 3;
    let bodies: Vec<String> = (0..64).map(|n| images(rows(n))).collect::<Result<_>>()?;
    let requests = bodies.into_iter().map(|body| post(&router, "/classify", body));
    let mut right = 0;
    for (n, (status, body)) in try_join_all(requests).await?.into_iter().enumerate() {
        assert_eq!(status, StatusCode::OK, "{body}");
        let shown = &digits.labels()[rows(n)];
        let read: Vec<u8> = numbers(&body);
        assert_eq!(read.len(), shown.len());
        right += usize::from(read == shown);
    }
    assert!(right >= 60, "{right} of 64");
    assert_eq!(metric(&router, ANSWERED).await?, 64.0);
    assert_eq!(metric(&router, "digits_latency_seconds_count").await?, 64.0);
    assert_eq!(metric(&router, "digits_batch_requests_sum").await?, 64.0);
    let ran = metric(&router, "digits_batch_requests_count").await?;
    assert!((4.0..=64.0).contains(&ran), "{ran} batches");
    drop(router);
    Ok(batches.await??)
}

/// The first request of a batch waits long, so only a full batch ends the wait.
#[tokio::test]
async fn full_batch_does_not_wait() -> Result {
    let limits = server_example::Limits { batch: 8, wait: LIMITS.deadline, ..LIMITS };
    let (router, batches) = routes(limits);
    let batches = tokio::spawn(batches.run(classifier().await?));
    let body = images(0..1)?;
    try_join_all((0..16).map(|_| post(&router, "/classify", body.clone()))).await?;
    assert_eq!(metric(&router, "digits_batch_requests_count").await?, 2.0);
    assert_eq!(metric(&router, "digits_batch_requests_bucket{le=\"8.0\"}").await?, 2.0);
    assert_eq!(metric(&router, "digits_batch_requests_bucket{le=\"4.0\"}").await?, 0.0);
    drop(router);
    Ok(batches.await??)
}

#[tokio::test]
async fn scores_are_the_probabilities_of_the_digits() -> Result {
    let (router, batches) = routes(LIMITS);
    tokio::spawn(batches.run(classifier().await?));
    let (status, digits) = post(&router, "/classify", images(0..20)?).await?;
    assert_eq!(status, StatusCode::OK);
    let (status, scores) = post(&router, "/scores", images(0..20)?).await?;
    assert_eq!(status, StatusCode::OK);
    let (digits, scores): (Vec<usize>, Vec<f32>) = (numbers(&digits), numbers(&scores));
    assert_eq!((digits.len(), scores.len()), (20, 200));
    for (digit, scores) in digits.into_iter().zip(scores.chunks(10)) {
        assert!((scores.iter().sum::<f32>() - 1.0).abs() < 1e-4, "{scores:?}");
        assert!(scores.iter().all(|score| *score <= scores[digit]), "{digit}: {scores:?}");
    }
    Ok(())
}

#[tokio::test]
async fn metrics_count_device_memory_and_end_as_open_metrics() -> Result {
    let (router, batches) = routes(LIMITS);
    assert_eq!(metric(&router, "digits_device_memory_bytes").await?, 0.0);
    let _batches = batches.run(classifier().await?);
    // The weights alone have 26 KiB.
    assert!(metric(&router, "digits_device_memory_bytes").await? > 26e3);
    let (_, text) = get(&router, "/metrics").await?;
    assert!(text.ends_with("# EOF\n"));
    for outcome in ["answered", "malformed", "refused", "timed_out", "failed", "cancelled"] {
        let name = format!("digits_requests_total{{outcome=\"{outcome}\"}}");
        assert_eq!(metric(&router, &name).await?, 0.0);
    }
    for name in ["digits_queue_length", "digits_connections", "digits_dropped_total"] {
        assert_eq!(metric(&router, name).await?, 0.0);
    }
    Ok(())
}

#[tokio::test]
async fn page_has_hashes_of_its_script_and_style() -> Result {
    use tower::ServiceExt;
    let (router, _batches) = routes(LIMITS);
    let request = axum::http::Request::get("/").body(axum::body::Body::empty())?;
    let response = router.oneshot(request).await?;
    let policy = response.headers()["content-security-policy"].to_str()?;
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    Ok(())
}
