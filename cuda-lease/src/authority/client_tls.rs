//! Placeholder, replaced by the merge.
#![allow(missing_docs)]
use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use rustls::client::danger::*;
use rustls::pki_types::*;
#[derive(Debug, Clone)]
pub struct ClientTls;
#[derive(Debug)]
struct Any(Arc<rustls::crypto::CryptoProvider>);
impl ServerCertVerifier for Any {
    fn verify_server_cert(&self, _: &CertificateDer<'_>, _: &[CertificateDer<'_>], _: &ServerName<'_>, _: &[u8], _: UnixTime) -> Result<ServerCertVerified, rustls::Error> { Ok(ServerCertVerified::assertion()) }
    fn verify_tls12_signature(&self, m: &[u8], c: &CertificateDer<'_>, d: &rustls::DigitallySignedStruct) -> Result<HandshakeSignatureValid, rustls::Error> { rustls::crypto::verify_tls12_signature(m, c, d, &self.0.signature_verification_algorithms) }
    fn verify_tls13_signature(&self, m: &[u8], c: &CertificateDer<'_>, d: &rustls::DigitallySignedStruct) -> Result<HandshakeSignatureValid, rustls::Error> { rustls::crypto::verify_tls13_signature(m, c, d, &self.0.signature_verification_algorithms) }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> { self.0.signature_verification_algorithms.supported_schemes() }
}
impl ClientTls {
    pub fn loopback() -> Self { Self }
    pub fn with_ca(_: PathBuf) -> Self { Self }
    pub fn identity(self, _: PathBuf, _: PathBuf) -> Self { self }
    pub fn client_config(&self, _: SocketAddr) -> Result<quinn::ClientConfig, String> {
        let p = Arc::new(rustls::crypto::ring::default_provider());
        let mut c = rustls::ClientConfig::builder_with_provider(p.clone()).with_protocol_versions(&[&rustls::version::TLS13]).unwrap().dangerous().with_custom_certificate_verifier(Arc::new(Any(p))).with_no_client_auth();
        c.alpn_protocols = vec![crate::wire::ALPN.to_vec()];
        Ok(quinn::ClientConfig::new(Arc::new(quinn::crypto::rustls::QuicClientConfig::try_from(c).unwrap())))
    }
}
