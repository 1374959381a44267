//! TLS settings and errors that clients and nodes share.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quinn::crypto::rustls::NoInitialCipherSuite;
use rustls::InconsistentKeys;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

use super::chain_limit::{self, ChainError};
use super::pem::{self, PemError};

/// The application protocol that both sides negotiate (ALPN). It changes with every incompatible change of the wire
/// protocol.
pub const ALPN: &[u8] = b"cuda-lease/1";

/// TLS settings that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A PEM file cannot be used.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// A certificate in a file is not a valid X.509 certificate.
    #[error("a certificate in {} is not valid: {source}; issue it again", path.display())]
    BadCertificate {
        /// The file.
        path: PathBuf,
        /// The error of the TLS library.
        source: rustls::Error,
    },
    /// The other side would refuse the certificate chain in a file.
    #[error("{} cannot be presented: {source}", path.display())]
    Chain {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ChainError,
    },
    /// The private key has a type that is not supported, or its bytes are damaged.
    #[error("the private key in {} cannot be used: {source}; use an ECDSA, Ed25519 or RSA key", path.display())]
    BadKey {
        /// The file.
        path: PathBuf,
        /// The error of the TLS library.
        source: rustls::Error,
    },
    /// The private key belongs to another certificate.
    #[error(
        "the key in {} does not belong to the certificate in {}; pass the two files that were created together",
        key.display(), certificate.display()
    )]
    KeyMismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The client trusts any certificate, and the node's address is not a loopback address.
    #[error(
        "node address {address} is not a loopback address, and no certificate authority is set to verify the node; \
         set the authority that issued the node's certificate (ca.pem)"
    )]
    UnverifiedNode {
        /// The node's address.
        address: SocketAddr,
    },
    /// The node verifies no clients, and its listen address is not a loopback address.
    #[error(
        "listen address {address} is not a loopback address, and an insecure node verifies no clients; use --cert, \
         --key and --client-ca, or listen on 127.0.0.1"
    )]
    UnverifiedClients {
        /// The listen address.
        address: SocketAddr,
    },
    /// The node's name is neither a DNS name nor an IP address.
    #[error("node name {name:?} is neither a DNS name nor an IP address; write it without a port")]
    ServerName {
        /// The name.
        name: String,
    },
    /// An insecure node could not create its temporary certificate.
    #[cfg(feature = "server")]
    #[error("cannot create a temporary certificate: {0}; use --cert, --key and --client-ca")]
    SelfSigned(#[from] rcgen::Error),
    /// The certificates of authorities cannot verify the other side.
    #[error("the certificates in {} cannot verify others: {source}; pass the authority's ca.pem", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The error of the TLS library.
        source: rustls::server::VerifierBuilderError,
    },
    /// The certificate of the node does not state that it is for servers.
    #[cfg(feature = "server")]
    #[error(
        "the certificate in {} does not state the extended key usage serverAuth; issue one for a node, with that usage",
        path.display()
    )]
    NotForNodes {
        /// The file.
        path: PathBuf,
    },
    /// A list of revoked certificates cannot be used.
    #[cfg(feature = "server")]
    #[error(
        "a list of revoked certificates in {} cannot be used: {source}; get a complete one of version 2 from its authority",
        path.display()
    )]
    RevocationList {
        /// The file.
        path: PathBuf,
        /// The error of the TLS library.
        source: rustls::server::VerifierBuilderError,
    },
    /// A list of revoked certificates does not have the signature of the authority that it names.
    #[cfg(feature = "server")]
    #[error(
        "a list of revoked certificates in {} is not signed by authority {authority:?}, which it names; get it from that \
         authority again",
        path.display()
    )]
    ForgedList {
        /// The file of the list.
        path: PathBuf,
        /// The name of the authority.
        authority: String,
    },
    /// An authority of clients has no list of revoked certificates, but another one has.
    #[cfg(feature = "server")]
    #[error(
        "authority {authority:?} in {} has no list of revoked certificates, so all of its certificates would be \
         refused; add its list with --crl",
        path.display()
    )]
    NoListOfAuthority {
        /// The file of the authorities.
        path: PathBuf,
        /// The name of the authority.
        authority: String,
    },
    /// The TLS library refuses TLS 1.3 with this build's cryptography.
    #[error("the TLS library refuses TLS 1.3: {0}; report this as a fault of cuda-lease")]
    Protocol(#[source] rustls::Error),
    /// The cryptography of this build lacks the cipher that QUIC starts with.
    #[error("this build has no cipher for QUIC: {0}; report this as a fault of cuda-lease")]
    Quic(#[from] NoInitialCipherSuite),
}

/// Returns the only crypto provider that this crate uses. The default of the process is never used.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Tests for 127.0.0.0/8, `::1`, and 127.0.0.0/8 mapped into IPv6.
pub(super) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Reads the certificates of a file as trusted authorities.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in pem::certificates(path)? {
        roots
            .add(certificate)
            .map_err(|source| TlsError::BadCertificate { path: path.to_owned(), source })?;
    }
    Ok(roots)
}

/// The files of a certificate chain and its private key.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Credentials {
    /// Reads the chain, end-entity certificate first, and the key.
    pub(super) fn read(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let chain = pem::certificates(&self.certificate)?;
        chain_limit::check(&chain)
            .map_err(|source| TlsError::Chain { path: self.certificate.clone(), source })?;
        Ok((chain, pem::private_key(&self.key)?))
    }

    /// Converts the TLS library's error about the pair into one that names the file.
    pub(super) fn load_error(&self, source: rustls::Error) -> TlsError {
        match source {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsError::KeyMismatch {
                    certificate: self.certificate.clone(),
                    key: self.key.clone(),
                }
            }
            rustls::Error::InvalidCertificate(_) => {
                TlsError::BadCertificate { path: self.certificate.clone(), source }
            }
            source => TlsError::BadKey { path: self.key.clone(), source },
        }
    }
}
