//! The node's side of TLS: presents the node's certificate, verifies clients, and derives their identity.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use quinn::crypto::rustls::QuicServerConfig;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};

use super::identity::{Fingerprint, IdentityError, Tenant};
use super::tls::{self, ALPN, Credentials, TlsError};

/// The TLS options of a node.
///
/// Files are read whenever a configuration is built. To load renewed files, build a configuration again and pass it
/// to [`quinn::Endpoint::set_server_config`]; existing connections keep the old one. Connections use TLS 1.3 without
/// early data and without session tickets, so each connection presents its certificate.
#[derive(Clone, Debug)]
pub struct ServerTls(Mode);

#[derive(Clone, Debug)]
enum Mode {
    Insecure,
    Mutual { credentials: Credentials, client_ca: PathBuf },
}

impl ServerTls {
    /// Creates options that verify no clients and present a new self-signed certificate. Only for loopback listen
    /// addresses.
    ///
    /// Every client is the tenant `local`, and all have the same fingerprint, so a lease token protects no client
    /// from the other programs of this machine.
    pub fn insecure() -> Self {
        Self(Mode::Insecure)
    }

    /// Requires and verifies a client certificate on each connection.
    ///
    /// `certificate` and `key` are the PEM files of the node's certificate chain and private key. `client_ca` is the
    /// PEM file of the authorities that issue client certificates.
    pub fn mutual(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        client_ca: impl Into<PathBuf>,
    ) -> Self {
        let credentials = Credentials { certificate: certificate.into(), key: key.into() };
        Self(Mode::Mutual { credentials, client_ca: client_ca.into() })
    }

    /// Checks that a node with these options may listen on `listen`.
    ///
    /// # Errors
    ///
    /// [`TlsError::UnverifiedClients`] if the node verifies no clients and `listen` is not a loopback address.
    pub fn check_listen(&self, listen: SocketAddr) -> Result<(), TlsError> {
        match self.0 {
            Mode::Insecure if !tls::is_loopback(listen) => {
                Err(TlsError::UnverifiedClients { address: listen })
            }
            _ => Ok(()),
        }
    }

    /// Builds the configuration of an endpoint that listens on `listen`. Reads the PEM files.
    ///
    /// # Errors
    ///
    /// The error of [`check_listen`](Self::check_listen). The other errors name the file that cannot be used.
    pub fn config_for(&self, listen: SocketAddr) -> Result<quinn::ServerConfig, TlsError> {
        self.check_listen(listen)?;
        let crypto = QuicServerConfig::try_from(self.crypto()?)?;
        Ok(quinn::ServerConfig::with_crypto(Arc::new(crypto)))
    }

    pub(super) fn crypto(&self) -> Result<rustls::ServerConfig, TlsError> {
        let provider = tls::provider();
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Protocol)?;
        let mut config = match &self.0 {
            Mode::Insecure => {
                let (certificate, key) = self_signed()?;
                builder
                    .with_no_client_auth()
                    .with_single_cert(vec![certificate], key)
                    .map_err(TlsError::Protocol)?
            }
            Mode::Mutual { credentials, client_ca } => {
                let roots = Arc::new(tls::authorities(client_ca)?);
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots, provider).build().map_err(
                        |source| TlsError::ClientAuthority { path: client_ca.clone(), source },
                    )?;
                let (chain, key) = credentials.read()?;
                builder
                    .with_client_cert_verifier(verifier)
                    .with_single_cert(chain, key)
                    .map_err(|error| credentials.load_error(error))?
            }
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.max_early_data_size = 0;
        Ok(config)
    }

    /// Returns the tenant and the certificate's fingerprint of a connection that this node accepted.
    ///
    /// An insecure node returns [`Tenant::local`] and [`Fingerprint::UNAUTHENTICATED`] for every connection.
    ///
    /// # Errors
    ///
    /// [`IdentityError`] if the client's certificate, which the handshake has verified, names no valid tenant. Close
    /// the connection then.
    pub fn identify(
        &self,
        connection: &quinn::Connection,
    ) -> Result<(Tenant, Fingerprint), IdentityError> {
        if let Mode::Insecure = self.0 {
            return Ok((Tenant::local(), Fingerprint::UNAUTHENTICATED));
        }
        let chain = connection
            .peer_identity()
            .and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok());
        let certificate = chain.as_ref().and_then(|chain| chain.first());
        let certificate = certificate.ok_or(IdentityError::NoCertificate)?;
        Ok((Tenant::from_certificate(certificate)?, Fingerprint::of(certificate)))
    }
}

/// Creates a certificate and key that exist only in this process.
fn self_signed() -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), rcgen::Error> {
    let key = KeyPair::generate()?;
    let params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let certificate = params.self_signed(&key)?.der().clone();
    Ok((certificate, PrivateKeyDer::Pkcs8(key.serialize_der().into())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::development_ca::DevelopmentCertificates;
    use super::super::pem::PemError;
    use super::*;

    fn installation() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let certificates = DevelopmentCertificates::new(directory.path());
        certificates.host("localhost").client("alice").create().unwrap();
        directory
    }

    /// The error of a node with these files.
    fn refused(directory: &Path, certificate: &str, key: &str, client_ca: &str) -> TlsError {
        let file = |name| directory.join(name);
        let tls = ServerTls::mutual(file(certificate), file(key), file(client_ca));
        tls.config_for("127.0.0.1:0".parse().unwrap()).unwrap_err()
    }

    #[test]
    fn insecure_node_refuses_other_listen_addresses() {
        for address in ["127.0.0.1:1", "[::1]:1"] {
            ServerTls::insecure().config_for(address.parse().unwrap()).unwrap();
        }
        for address in ["0.0.0.0:1", "[::]:1", "10.0.0.5:1"] {
            let error = ServerTls::insecure().config_for(address.parse().unwrap()).unwrap_err();
            assert!(matches!(error, TlsError::UnverifiedClients { .. }), "{error}");
            assert!(error.to_string().contains("--cert, --key and --client-ca"), "{error}");
        }
    }

    #[test]
    fn mutual_node_may_listen_anywhere() {
        let tls = ServerTls::mutual("node.pem", "node.key", "ca.pem");
        tls.check_listen("0.0.0.0:1".parse().unwrap()).unwrap();
    }

    #[test]
    fn key_of_another_certificate_is_refused() {
        let directory = installation();
        let error = refused(directory.path(), "node.pem", "alice.key", "ca.pem");
        assert!(matches!(error, TlsError::KeyMismatch { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("node.pem") && message.contains("alice.key"), "{message}");
    }

    #[test]
    fn damaged_certificate_or_key_is_named() {
        let directory = installation();
        let section =
            |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
        fs::write(directory.path().join("bad.pem"), section("CERTIFICATE")).unwrap();
        fs::write(directory.path().join("bad.key"), section("PRIVATE KEY")).unwrap();
        for (certificate, client_ca) in [("bad.pem", "ca.pem"), ("node.pem", "bad.pem")] {
            let error = refused(directory.path(), certificate, "node.key", client_ca);
            assert!(matches!(error, TlsError::BadCertificate { .. }), "{error}");
            assert!(error.to_string().contains("bad.pem"), "{error}");
        }
        let error = refused(directory.path(), "node.pem", "bad.key", "ca.pem");
        assert!(matches!(error, TlsError::BadKey { .. }), "{error}");
        assert!(error.to_string().contains("bad.key"), "{error}");
    }

    #[test]
    fn missing_or_exchanged_files_are_refused() {
        let directory = installation();
        let refused = |certificate, key, client_ca| match refused(
            directory.path(),
            certificate,
            key,
            client_ca,
        ) {
            TlsError::Pem(error) => error,
            error => panic!("{error}"),
        };
        let error = refused("node.key", "node.pem", "ca.pem");
        assert!(matches!(error, PemError::NoCertificate { .. }), "{error}");
        let error = refused("node.pem", "node.key", "ca.key");
        assert!(matches!(error, PemError::NoCertificate { .. }), "{error}");
        let error = refused("node.pem", "ca.pem", "ca.pem");
        assert!(matches!(error, PemError::NoPrivateKey { .. }), "{error}");
        for absent in 0..3 {
            let name = |index, name| if index == absent { "absent" } else { name };
            let error = refused(name(0, "node.pem"), name(1, "node.key"), name(2, "ca.pem"));
            assert!(matches!(error, PemError::Read { .. }), "{error}");
            assert!(error.to_string().contains("absent"), "{error}");
        }
    }
}
