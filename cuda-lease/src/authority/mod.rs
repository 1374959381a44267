//! Certificates and tokens.
mod client_tls;
pub use client_tls::ClientTls;
