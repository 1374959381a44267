//! Decides which clients may use a lease: TLS configurations, identities from certificates, and lease tokens.
//!
//! Files here use no other folder of this crate. They use `quinn` and `rustls` with the *ring* provider, which each
//! configuration names explicitly. The client asks [`ClientTls`] for the configuration of a connection. The node
//! (feature `server`) asks `ServerTls` for its configuration and for the `ClientIdentity` of each connection: its
//! [`Tenant`] and the [`Fingerprint`] of its key. It gives these to the lease table, and issues a [`Token`] for each
//! lease with its [`TokenKey`]. `DevelopmentCertificates` writes the certificate files of a test installation for the
//! command line.
//!
//! A typical connection goes through `tls` (shared settings), `pem` (files) and `chain_limit` (the certificates that a
//! peer may present) into `client_tls` and `server_tls`.
//! After the handshake it goes to `identity`, and each request of the client then goes to `token`.

#![forbid(unsafe_code)]

mod chain_limit;
mod client_tls;
#[cfg(feature = "certs")]
mod development_ca;
mod identity;
mod pem;
#[cfg(feature = "server")]
mod server_tls;
#[cfg(test)]
#[cfg(feature = "server")]
mod tests;
mod tls;
mod token;

pub use chain_limit::ChainError;
pub use client_tls::ClientTls;
#[cfg(feature = "certs")]
pub use development_ca::{CreatedCertificates, DevelopmentCaError, DevelopmentCertificates};
#[cfg(feature = "server")]
pub use identity::{ClientIdentity, IdentityError};
pub use identity::{Fingerprint, Tenant, TenantError};
pub use pem::PemError;
#[cfg(feature = "server")]
pub use server_tls::{ClientVerifier, ServerTls};
pub use tls::{ALPN, TlsError};
pub use token::{Claims, Token, TokenError, TokenKey};
