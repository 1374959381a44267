//! The node's side of TLS: presents the node's certificate, verifies clients, and derives their identity.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quinn::crypto::rustls::QuicServerConfig;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{CertificateError, RootCertStore};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate, X509Error};

use super::chain_limit::Limited;
use super::identity::{ClientIdentity, IdentityError};
use super::pem;
use super::tls::{self, ALPN, Credentials, TlsError};

/// The TLS options of a node.
///
/// Files are read whenever a configuration is built. To load renewed files, build a configuration again and pass it
/// to [`quinn::Endpoint::set_server_config`]; existing connections keep the old one, and
/// [`ClientVerifier::recheck`] says which of them to close. Connections use TLS 1.3 without early data and without
/// session tickets, so each connection presents its certificate.
#[derive(Clone, Debug)]
pub struct ServerTls(Mode);

#[derive(Clone, Debug)]
enum Mode {
    Insecure,
    Mutual { credentials: Credentials, client_ca: PathBuf, revoked: Vec<PathBuf> },
}

/// Verifies the certificates of clients, with the authorities and lists that were read at one time.
#[derive(Clone, Debug)]
pub struct ClientVerifier(Option<Arc<dyn ClientCertVerifier>>);

impl ClientVerifier {
    /// Verifies the certificate of a client that is connected again: it may have expired or been revoked since.
    ///
    /// # Errors
    ///
    /// [`IdentityError`] if a new connection of this client would be refused now. Close the connection then.
    pub fn recheck(&self, client: &ClientIdentity) -> Result<(), IdentityError> {
        let Some(verifier) = &self.0 else { return Ok(()) };
        let (own, others) = client.chain.split_first().ok_or(IdentityError::NoCertificate)?;
        match verifier.verify_client_cert(own, others, UnixTime::now()) {
            Ok(_) => Ok(()),
            Err(rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => Err(IdentityError::Expired),
            Err(rustls::Error::InvalidCertificate(CertificateError::Revoked)) => {
                Err(IdentityError::Revoked)
            }
            Err(error) => Err(IdentityError::Invalid(error)),
        }
    }
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
    /// PEM file of the authorities that issue client certificates. On Unix, `key` is refused if group or others can
    /// access it.
    pub fn mutual(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        client_ca: impl Into<PathBuf>,
    ) -> Self {
        let credentials = Credentials { certificate: certificate.into(), key: key.into() };
        Self(Mode::Mutual { credentials, client_ca: client_ca.into(), revoked: Vec::new() })
    }

    /// Refuses the client certificates that the lists in `file` revoke (CRLs, in PEM, or one in DER). Call it once for
    /// each file. A node that verifies no clients does not read it.
    ///
    /// As soon as there is one list, each authority of `client_ca` needs one, and so does each intermediate authority:
    /// a certificate whose authority has no list is refused. A list stays in force after the time of its next update,
    /// with a warning when it is read.
    pub fn revoked(mut self, file: impl Into<PathBuf>) -> Self {
        if let Mode::Mutual { revoked, .. } = &mut self.0 {
            revoked.push(file.into());
        }
        self
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

    /// Builds the configuration of an endpoint that listens on `listen`, and the verifier of its clients. Reads the
    /// files.
    ///
    /// # Errors
    ///
    /// The error of [`check_listen`](Self::check_listen). The other errors name the file that cannot be used.
    pub fn config_for(
        &self,
        listen: SocketAddr,
    ) -> Result<(quinn::ServerConfig, ClientVerifier), TlsError> {
        self.check_listen(listen)?;
        let (crypto, verifier) = self.crypto()?;
        let crypto = QuicServerConfig::try_from(crypto)?;
        Ok((quinn::ServerConfig::with_crypto(Arc::new(crypto)), verifier))
    }

    pub(super) fn crypto(&self) -> Result<(rustls::ServerConfig, ClientVerifier), TlsError> {
        let builder = rustls::ServerConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Protocol)?;
        let (mut config, verifier) = match &self.0 {
            Mode::Insecure => {
                let (certificate, key) = self_signed()?;
                let config = builder
                    .with_no_client_auth()
                    .with_single_cert(vec![certificate], key)
                    .map_err(TlsError::Protocol)?;
                (config, None)
            }
            Mode::Mutual { credentials, client_ca, revoked } => {
                let verifier = verifier(client_ca, revoked)?;
                let (chain, key) = credentials.read()?;
                check_usage(&credentials.certificate, &chain)?;
                warn_of_validity(&credentials.certificate, &chain);
                let config = builder
                    .with_client_cert_verifier(verifier.clone())
                    .with_single_cert(chain, key)
                    .map_err(|error| credentials.load_error(error))?;
                (config, Some(verifier))
            }
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.max_early_data_size = 0;
        Ok((config, ClientVerifier(verifier)))
    }

    /// Returns the identity of the client of a connection that this node accepted.
    ///
    /// An insecure node returns [`Tenant::local`](super::Tenant::local) and
    /// [`Fingerprint::UNAUTHENTICATED`](super::Fingerprint::UNAUTHENTICATED) for every connection.
    ///
    /// # Errors
    ///
    /// [`IdentityError`] if the client's certificate, which the handshake has verified, is not for clients or names no
    /// valid tenant. Close the connection then.
    pub fn identify(
        &self,
        connection: &quinn::Connection,
    ) -> Result<ClientIdentity, IdentityError> {
        if let Mode::Insecure = self.0 {
            return Ok(ClientIdentity::local());
        }
        let chain = connection
            .peer_identity()
            .and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok());
        ClientIdentity::of(*chain.ok_or(IdentityError::NoCertificate)?)
    }
}

/// Builds the verifier of clients from the files of their authorities and of the lists of revoked certificates.
fn verifier(
    client_ca: &Path,
    revoked: &[PathBuf],
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let authorities = pem::certificates(client_ca)?;
    let roots = Arc::new(tls::authorities(client_ca)?);
    let mut lists = Vec::new();
    for path in revoked {
        let of_file = pem::revocation_lists(path)?;
        check_lists(path, &of_file, &roots)?;
        check_signatures(path, &of_file, &authorities)?;
        lists.extend(of_file);
    }
    if !lists.is_empty() {
        check_complete(client_ca, &authorities, &lists)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, tls::provider())
        .with_crls(lists)
        .build()
        .map_err(|source| TlsError::Authority { path: client_ca.to_owned(), source })?;
    Ok(Arc::new(Limited(verifier)))
}

/// Parses certificates or lists. Those that cannot be parsed have another error.
fn parsed<'a, T: FromDer<'a, X509Error>>(
    encoded: &'a [impl AsRef<[u8]>],
) -> impl Iterator<Item = T> {
    encoded.iter().filter_map(|encoded| Some(T::from_der(encoded.as_ref()).ok()?.1))
}

/// Checks the lists of one file, and warns of those that wait for their next update.
fn check_lists(
    path: &Path,
    lists: &[CertificateRevocationListDer<'static>],
    roots: &Arc<RootCertStore>,
) -> Result<(), TlsError> {
    // The error of the verifier names no file.
    WebPkiClientVerifier::builder_with_provider(roots.clone(), tls::provider())
        .with_crls(lists.iter().cloned())
        .build()
        .map_err(|source| TlsError::RevocationList { path: path.to_owned(), source })?;
    let now = x509_parser::time::ASN1Time::now();
    let lists = parsed::<CertificateRevocationList<'_>>(lists);
    for next in lists.filter_map(|list| list.next_update()).filter(|next| *next < now) {
        let file = path.display();
        tracing::warn!(%file, due = %next, "a list of revoked certificates is out of date, and stays in force");
    }
    Ok(())
}

/// Checks that a list that names one of the authorities has its signature: otherwise all certificates of that authority
/// would be refused.
fn check_signatures(
    path: &Path,
    lists: &[CertificateRevocationListDer<'static>],
    authorities: &[CertificateDer<'static>],
) -> Result<(), TlsError> {
    let authorities: Vec<X509Certificate<'_>> = parsed(authorities).collect();
    for list in parsed::<CertificateRevocationList<'_>>(lists) {
        let of_list =
            authorities.iter().filter(|of| of.subject().as_raw() == list.issuer().as_raw());
        // Several authorities may have one name, while the key of an authority changes.
        let mut verified = of_list.map(|of| list.verify_signature(of.public_key())).peekable();
        let is_forged = |verified| verified == Err(X509Error::SignatureVerificationError);
        if verified.peek().is_some() && verified.all(is_forged) {
            let (path, authority) = (path.to_owned(), list.issuer().to_string());
            return Err(TlsError::ForgedList { path, authority });
        }
    }
    Ok(())
}

/// Checks that each authority has a list: otherwise all of its certificates would be refused.
fn check_complete(
    client_ca: &Path,
    authorities: &[CertificateDer<'static>],
    lists: &[CertificateRevocationListDer<'static>],
) -> Result<(), TlsError> {
    let lists: Vec<CertificateRevocationList<'_>> = parsed(lists).collect();
    for authority in parsed::<X509Certificate<'_>>(authorities) {
        if !lists.iter().any(|list| list.issuer().as_raw() == authority.subject().as_raw()) {
            let (path, authority) = (client_ca.to_owned(), authority.subject().to_string());
            return Err(TlsError::NoListOfAuthority { path, authority });
        }
    }
    Ok(())
}

/// Checks that the certificate of the node states that it is for servers: clients refuse one that states other usages.
fn check_usage(path: &Path, chain: &[CertificateDer<'static>]) -> Result<(), TlsError> {
    let Some(own) = chain.first() else { return Ok(()) };
    // Bytes that are no certificate have another error.
    let Ok((_, own)) = x509_parser::parse_x509_certificate(own) else { return Ok(()) };
    match own.extended_key_usage() {
        Ok(Some(usage)) if usage.value.server_auth => Ok(()),
        _ => Err(TlsError::NotForNodes { path: path.to_owned() }),
    }
}

/// Warns of certificates of the node that clients refuse because of their dates. A clock may be wrong, so the node starts.
fn warn_of_validity(path: &Path, chain: &[CertificateDer<'static>]) {
    for certificate in parsed::<X509Certificate<'_>>(chain).filter(|one| !one.validity().is_valid())
    {
        let validity = certificate.validity();
        let (file, from, until) = (path.display(), validity.not_before, validity.not_after);
        tracing::warn!(%file, %from, %until, "a certificate of this node has expired or is not yet valid, so clients refuse the node");
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
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

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
        let bad_key = directory.path().join("bad.key");
        fs::write(&bad_key, section("PRIVATE KEY")).unwrap();
        fs::set_permissions(&bad_key, Permissions::from_mode(0o600)).unwrap();
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
        assert!(matches!(error, PemError::Exposed { .. }), "{error}");
        for absent in 0..3 {
            let name = |index, name| if index == absent { "absent" } else { name };
            let error = refused(name(0, "node.pem"), name(1, "node.key"), name(2, "ca.pem"));
            assert!(matches!(error, PemError::Read { .. }), "{error}");
            assert!(error.to_string().contains("absent"), "{error}");
        }
    }
}
