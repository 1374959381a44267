//! The client's side of TLS: verifies the node, and presents a client certificate.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

use super::chain_limit::Limited;
use super::tls::{self, ALPN, Credentials, TlsError};

/// The TLS options of a client.
///
/// Files are read when a configuration is built, not when the options are set. The connection uses TLS 1.3 without
/// early data and without resumption. A node checks a client's certificate after the client has finished its half of
/// the handshake. So a refusal closes a connection that the client has already opened.
///
/// ```
/// use cuda_lease::authority::ClientTls;
///
/// let tls = ClientTls::loopback();
/// assert!(tls.config_for("127.0.0.1:4433".parse()?).is_ok());
/// assert!(tls.config_for("10.0.0.5:4433".parse()?).is_err());
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// The file of the trusted authorities; `None` accepts any certificate of a loopback address.
    authority: Option<PathBuf>,
    credentials: Option<Credentials>,
    server_name: Option<String>,
}

impl ClientTls {
    /// Accepts any certificate of a node on this machine, and refuses every other address.
    ///
    /// The connection is encrypted but the node is not verified: any program on this machine could be the node.
    pub fn loopback() -> Self {
        Self { authority: None, credentials: None, server_name: None }
    }

    /// Accepts only nodes whose certificate was issued by an authority in the PEM file `ca`.
    pub fn with_ca(ca: impl Into<PathBuf>) -> Self {
        Self { authority: Some(ca.into()), ..Self::loopback() }
    }

    /// Presents the certificate chain in the PEM file `certificate`, with the private key in the PEM file `key`.
    pub fn client_certificate(
        self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let credentials = Credentials { certificate: certificate.into(), key: key.into() };
        Self { credentials: Some(credentials), ..self }
    }

    /// Expects the node's certificate to be for `name`, instead of for the host that the client connects to.
    pub fn server_name(self, name: impl Into<String>) -> Self {
        Self { server_name: Some(name.into()), ..self }
    }

    /// Returns the name to pass to [`quinn::Endpoint::connect_with`] for a node at `host`.
    ///
    /// It is the name set with [`server_name`](Self::server_name), else `host`. An IPv6 address may be in brackets.
    ///
    /// # Errors
    ///
    /// [`TlsError::ServerName`] if the name is neither a DNS name nor an IP address.
    pub fn server_name_for(&self, host: &str) -> Result<String, TlsError> {
        let name = self.server_name.as_deref().unwrap_or(host);
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        match ServerName::try_from(name) {
            Ok(_) => Ok(name.to_owned()),
            Err(_) => Err(TlsError::ServerName { name: name.to_owned() }),
        }
    }

    /// Builds the configuration for a connection to `address`. Reads the PEM files. On Unix, the file of the private
    /// key is refused if group or others can access it.
    ///
    /// # Errors
    ///
    /// [`TlsError::UnverifiedNode`] if no authority is set and `address` is not a loopback address. The other errors
    /// name the file that cannot be used.
    pub fn config_for(&self, address: SocketAddr) -> Result<quinn::ClientConfig, TlsError> {
        self.load(address).map(|(config, _)| config)
    }

    /// As [`config_for`](Self::config_for), with the client certificate that the configuration presents.
    pub(crate) fn load(
        &self,
        address: SocketAddr,
    ) -> Result<(quinn::ClientConfig, Option<CertificateDer<'static>>), TlsError> {
        let (crypto, certificate) = self.crypto_for(address)?;
        let crypto = QuicClientConfig::try_from(crypto)?;
        Ok((quinn::ClientConfig::new(Arc::new(crypto)), certificate))
    }

    /// Builds the configuration, and returns the client certificate that it presents.
    pub(super) fn crypto_for(
        &self,
        address: SocketAddr,
    ) -> Result<(rustls::ClientConfig, Option<CertificateDer<'static>>), TlsError> {
        let provider = tls::provider();
        let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Protocol)?;
        let builder = match &self.authority {
            Some(path) => {
                let roots = Arc::new(tls::authorities(path)?);
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(|source| TlsError::Authority { path: path.clone(), source })?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Limited(verifier)))
            }
            None if tls::is_loopback(address) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider))),
            None => return Err(TlsError::UnverifiedNode { address }),
        };
        let (mut config, certificate) = match &self.credentials {
            Some(credentials) => {
                let (chain, key) = credentials.read()?;
                let certificate = chain.first().cloned();
                let config = builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| credentials.load_error(error))?;
                (config, certificate)
            }
            None => (builder.with_no_client_auth(), None),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_early_data = false;
        Ok((config, certificate))
    }
}

/// Accepts any certificate, but still checks that the node has the certificate's private key.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(tls: &ClientTls, address: &str) -> Result<quinn::ClientConfig, TlsError> {
        tls.config_for(address.parse().unwrap())
    }

    #[test]
    fn loopback_client_refuses_other_addresses() {
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            config(&ClientTls::loopback(), address).unwrap();
        }
        for address in ["10.0.0.5:1", "0.0.0.0:1", "[::]:1", "[fe80::1]:1", "[::ffff:10.0.0.5]:1"] {
            let error = config(&ClientTls::loopback(), address).unwrap_err();
            assert!(matches!(error, TlsError::UnverifiedNode { .. }), "{error}");
            assert!(error.to_string().contains("ca.pem"), "{error}");
        }
    }

    #[test]
    fn missing_files_are_named() {
        let error = config(&ClientTls::with_ca("/nonexistent/ca.pem"), "10.0.0.5:1").unwrap_err();
        assert!(error.to_string().contains("/nonexistent/ca.pem"), "{error}");
        let tls =
            ClientTls::loopback().client_certificate("/nonexistent/a.pem", "/nonexistent/a.key");
        let error = config(&tls, "127.0.0.1:1").unwrap_err();
        assert!(error.to_string().contains("/nonexistent/a.pem"), "{error}");
    }

    #[test]
    fn authority_with_damaged_certificate_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
            .unwrap();
        let error = config(&ClientTls::with_ca(&path), "127.0.0.1:1").unwrap_err();
        assert!(matches!(error, TlsError::BadCertificate { .. }), "{error}");
    }

    #[test]
    fn server_name_is_the_override_else_the_host() {
        let tls = ClientTls::loopback();
        assert_eq!(tls.server_name_for("node.example").unwrap(), "node.example");
        assert_eq!(tls.server_name_for("10.0.0.5").unwrap(), "10.0.0.5");
        assert_eq!(tls.server_name_for("[::1]").unwrap(), "::1");
        assert_eq!(tls.clone().server_name("gpu").server_name_for("10.0.0.5").unwrap(), "gpu");
        for host in ["", "a b", "host:4433", "[::1]:4433"] {
            let error = tls.server_name_for(host).unwrap_err();
            assert!(matches!(error, TlsError::ServerName { .. }), "{error}");
        }
    }

    #[cfg(feature = "server")]
    #[test]
    fn key_of_another_certificate_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let certificates = super::super::DevelopmentCertificates::new(directory.path());
        certificates.client("alice").client("bob").create().unwrap();
        let file = |name| directory.path().join(name);
        let tls = ClientTls::with_ca(file("ca.pem"));
        let alice = tls.clone().client_certificate(file("alice.pem"), file("alice.key"));
        config(&alice, "10.0.0.5:1").unwrap();
        let mixed = tls.client_certificate(file("alice.pem"), file("bob.key"));
        let error = config(&mixed, "10.0.0.5:1").unwrap_err();
        assert!(matches!(error, TlsError::KeyMismatch { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("alice.pem") && message.contains("bob.key"), "{message}");
    }
}
