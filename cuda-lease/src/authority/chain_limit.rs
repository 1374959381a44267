//! The limit of the certificates that a peer presents.
//!
//! The TLS library looks for a path from the peer's certificate to a trusted authority in every order of the
//! certificates between them. Anyone can present a dozen authorities of one name, which costs seconds of processor time
//! before the first signature of a trusted authority is missed. So both sides refuse large chains, and those with two
//! authorities of one name, before that search.

use std::sync::Arc;
use std::{fmt, iter};

#[cfg(feature = "server")]
use rustls::DistinguishedName;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
#[cfg(feature = "server")]
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, SignatureScheme};
use thiserror::Error;
use webpki::EndEntityCert;

/// The limit of the certificates of authorities that follow the own one.
pub(super) const MAX_AUTHORITIES: usize = 4;

/// The limit of the sizes of all certificates together, in bytes.
pub(super) const MAX_BYTES: usize = 16 << 10;

/// A chain of certificates that no client and no node verifies, because that could take long.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChainError {
    /// It exceeds the limit.
    #[error(
        "the chain of the certificate has {authorities} authorities and {bytes} bytes, the limit is {MAX_AUTHORITIES} \
         authorities and {MAX_BYTES} bytes; leave out the root, and authorities that did not sign it"
    )]
    Long {
        /// The number of certificates of authorities that follow the own one.
        authorities: usize,
        /// The size of all certificates in bytes.
        bytes: usize,
    },
    /// Two of its authorities have one name.
    #[error(
        "two authorities in the chain of the certificate have the same name; leave out all that did not sign it"
    )]
    SameName,
}

/// Checks a chain of certificates. If each authority has a name of its own, there is one path to verify.
pub(super) fn check<'a>(
    chain: impl IntoIterator<Item = &'a CertificateDer<'a>>,
) -> Result<(), ChainError> {
    let chain: Vec<_> = chain.into_iter().collect();
    let bytes = chain.iter().map(|certificate| certificate.len()).sum();
    let authorities = chain.get(1..).unwrap_or_default();
    if authorities.len() > MAX_AUTHORITIES || bytes > MAX_BYTES {
        return Err(ChainError::Long { authorities: authorities.len(), bytes });
    }
    // The verification ignores those that cannot be read.
    let read = authorities.iter().filter_map(|authority| EndEntityCert::try_from(*authority).ok());
    let names: Vec<_> = read.map(|authority| authority.subject().to_owned()).collect();
    let is_new = |(at, name)| !names[..at].contains(name);
    if names.iter().enumerate().all(is_new) { Ok(()) } else { Err(ChainError::SameName) }
}

impl fmt::Debug for ChainError {
    /// The TLS library writes the errors of verifiers this way into its messages, and into the reason for the peer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ChainError> for rustls::Error {
    fn from(error: ChainError) -> Self {
        CertificateError::Other(OtherError(Arc::new(error))).into()
    }
}

/// Verifies certificates of peers like `V`, and refuses chains that exceed the limit before `V` sees them.
#[derive(Debug)]
pub(super) struct Limited<V: ?Sized>(pub(super) Arc<V>);

impl ServerCertVerifier for Limited<WebPkiServerVerifier> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        check(iter::once(end_entity).chain(intermediates))?;
        self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(feature = "server")]
impl ClientCertVerifier for Limited<dyn ClientCertVerifier> {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        check(iter::once(end_entity).chain(intermediates))?;
        self.0.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
