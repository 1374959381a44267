//! The responses to requests that are not answered.

use axum::{
    http::{HeaderName, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};

use crate::limits::{MAX_BODY_BYTES, MAX_IMAGES};

/// The form of a request body.
const EXPECTED: &str = "send a JSON array of images, each an array of 64 numbers from 0 to 16";

/// The reason why a request is not answered. Its text is the body of the response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the body is not valid: {0}; {EXPECTED}")]
    Syntax(serde_json::Error),
    #[error("the body has {0} images, the limit is 1 to {MAX_IMAGES}; {EXPECTED}")]
    Count(usize),
    #[error("image {index} is not 64 numbers from 0 to 16; {EXPECTED}")]
    Image { index: usize },
    #[error("the body is larger than {MAX_BODY_BYTES} bytes; {EXPECTED}")]
    TooLarge,
    #[error("the body ended too early or is not valid HTTP: {0}")]
    Body(axum::Error),
    #[error("the body did not arrive within the deadline of the request")]
    SlowBody,
    #[error("the queue is full: try again later")]
    QueueFull,
    #[error("the model is being loaded: try again later")]
    Loading,
    #[error("the device is lost: {0}")]
    Lost(String),
    #[error("the server is shutting down")]
    Closing,
    #[error("no answer within the deadline of the request")]
    Late,
    #[error("the device failed: {0}")]
    Device(cuda_async::Error),
}

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Syntax(_) | Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::Count(_) | Self::Image { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::QueueFull | Self::Loading | Self::Lost(_) | Self::Closing => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Late | Self::Device(cuda_async::Error::TimedOut { .. }) => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Device(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, text) = (self.status(), self.to_string());
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let retry: [(HeaderName, &str); 1] = [(RETRY_AFTER, "1")];
            return (status, retry, text).into_response();
        }
        (status, text).into_response()
    }
}
