//! Reads images from request bodies.

use axum::body::Body;
use examples::digits::PIXELS;
use futures::StreamExt;
use tokio::time::{Instant, timeout_at};

use crate::{
    limits::{MAX_BODY_BYTES, MAX_IMAGES},
    refusal::Refusal,
};

/// Reads the pixels of all images of a body, until `end`.
pub(crate) async fn read(body: Body, end: Instant) -> Result<Vec<u8>, Refusal> {
    let text = timeout_at(end, collect(body)).await.map_err(|_| Refusal::SlowBody)??;
    parse(&text)
}

/// Copies each part of a body and drops it immediately. A part of one byte keeps a whole buffer of hyper alive. The
/// parts of a body that arrives byte by byte would keep thousands of times its size alive.
async fn collect(body: Body) -> Result<Vec<u8>, Refusal> {
    let (mut parts, mut text) = (body.into_data_stream(), Vec::new());
    while let Some(part) = parts.next().await {
        let part = part.map_err(Refusal::Body)?;
        if text.len() + part.len() > MAX_BODY_BYTES {
            return Err(Refusal::TooLarge);
        }
        text.extend_from_slice(&part);
    }
    Ok(text)
}

fn parse(text: &[u8]) -> Result<Vec<u8>, Refusal> {
    let images: Vec<Vec<u8>> = serde_json::from_slice(text).map_err(Refusal::Syntax)?;
    if !(1..=MAX_IMAGES).contains(&images.len()) {
        return Err(Refusal::Count(images.len()));
    }
    let valid = |image: &Vec<u8>| image.len() == PIXELS && image.iter().all(|pixel| *pixel <= 16);
    match images.iter().position(|image| !valid(image)) {
        Some(index) => Err(Refusal::Image { index }),
        None => Ok(images.concat()),
    }
}
