//! The page on which a user draws a digit.

use std::sync::LazyLock;

use axum::{
    http::{
        HeaderName,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::IntoResponse,
};
use data_encoding::BASE64;
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page/index.html");

/// The content security policy: the page may run its own script, use its own style and call this server, and nothing
/// else.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let (script, style) = (hash("<script>", "</script>"), hash("<style>", "</style>"));
    format!(
        "default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

/// Returns the hash of the text between two tags, in the form of a content security policy. A wrong hash would only
/// make the browser block that text.
fn hash(start: &str, end: &str) -> String {
    let rest = PAGE.split_once(start).map_or("", |(_, rest)| rest);
    let text = rest.split_once(end).map_or("", |(text, _)| text);
    format!("sha256-{}", BASE64.encode(&Sha256::digest(text)))
}

pub(crate) async fn page() -> impl IntoResponse {
    let headers: [(HeaderName, &str); 5] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, &POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, PAGE)
}
