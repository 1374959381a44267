//! Real QUIC handshakes over 127.0.0.1 between [`ClientTls`] and [`ServerTls`], accepted and refused.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ConnectionError, Endpoint, TransportErrorCode};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{AlertDescription, HandshakeKind, PeerIncompatible};
use tempfile::TempDir;

use super::*;

const LOOPBACK: &str = "127.0.0.1:0";

fn loopback() -> SocketAddr {
    LOOPBACK.parse().unwrap()
}

/// A directory with an authority, a node for `localhost` and 127.0.0.1, and the client `alice`.
struct Installation(TempDir);

impl Installation {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let certificates = DevelopmentCertificates::new(directory.path());
        certificates.host("localhost").host("127.0.0.1").client("alice").create().unwrap();
        Self(directory)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn server(&self) -> ServerTls {
        self.server_as("node")
    }

    fn server_as(&self, name: &str) -> ServerTls {
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        ServerTls::mutual(self.file(&certificate), self.file(&key), self.file("ca.pem"))
    }

    fn anonymous(&self) -> ClientTls {
        ClientTls::with_ca(self.file("ca.pem"))
    }

    fn client_as(&self, name: &str) -> ClientTls {
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        self.anonymous().client_certificate(self.file(&certificate), self.file(&key))
    }

    /// Issues a certificate of the authority that `change` may alter, to `NAME.pem` and `NAME.key`.
    fn issue(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let ca_key = KeyPair::from_pem(&fs::read_to_string(self.file("ca.key")).unwrap()).unwrap();
        let ca = fs::read_to_string(self.file("ca.pem")).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&ca, ca_key).unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        fs::write(self.file(&format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(self.file(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

fn expired(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
}

type Identity = Result<(Tenant, Fingerprint), IdentityError>;

/// The result of a handshake on both sides. The client's is final: a late refusal of the node counts.
struct Outcome {
    client: Result<(), ConnectionError>,
    server: Result<Identity, ConnectionError>,
}

impl Outcome {
    fn accepted(self) -> Identity {
        self.client.unwrap();
        self.server.unwrap()
    }

    /// Asserts that the client refused the node with this alert.
    fn client_refused(self, alert: AlertDescription) {
        match self.client {
            Err(ConnectionError::TransportError(error)) => {
                assert_eq!(error.code, code(alert), "{error}")
            }
            other => panic!("client: {other:?}"),
        }
        assert!(self.server.is_err());
    }

    /// Asserts that the node refused the client with this alert, and that the client received it.
    fn server_refused(self, alert: AlertDescription) {
        match self.server {
            Err(ConnectionError::TransportError(error)) => {
                assert_eq!(error.code, code(alert), "{error}")
            }
            other => panic!("server: {other:?}"),
        }
        match self.client {
            Err(ConnectionError::ConnectionClosed(close)) => {
                assert_eq!(close.error_code, code(alert))
            }
            other => panic!("client: {other:?}"),
        }
    }
}

fn code(alert: AlertDescription) -> TransportErrorCode {
    TransportErrorCode::crypto(alert.into())
}

/// Connects a client to a server over 127.0.0.1.
async fn connect(
    tls: &ServerTls,
    server: quinn::ServerConfig,
    client: quinn::ClientConfig,
    name: &str,
) -> Outcome {
    let server = Endpoint::server(server, loopback()).unwrap();
    let client_endpoint = Endpoint::client(loopback()).unwrap();
    let address = server.local_addr().unwrap();
    let accept = async {
        let connection = server.accept().await.unwrap().accept()?.await?;
        // The stream shows the client that its certificate was accepted.
        connection.open_uni().await?.write_all(b"accepted").await.unwrap();
        Ok((tls.identify(&connection), connection))
    };
    let connect = async {
        let connection = client_endpoint.connect_with(client, address, name).unwrap().await?;
        connection.accept_uni().await?;
        Ok(connection)
    };
    let both = async { tokio::join!(accept, connect) };
    let (server, client) = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
    Outcome { client: client.map(drop), server: server.map(|(identity, _)| identity) }
}

/// Connects with the configurations that the options build.
async fn handshake(server: &ServerTls, client: &ClientTls, name: &str) -> Outcome {
    let name = client.server_name_for(name).unwrap();
    let server_config = server.config_for(loopback()).unwrap();
    connect(server, server_config, client.config_for(loopback()).unwrap(), &name).await
}

#[tokio::test]
async fn insecure_node_and_loopback_client_connect() {
    let outcome = handshake(&ServerTls::insecure(), &ClientTls::loopback(), "any.example").await;
    let (tenant, fingerprint) = outcome.accepted().unwrap();
    assert_eq!(tenant.as_str(), "local");
    assert_eq!(fingerprint, Fingerprint::UNAUTHENTICATED);
}

#[tokio::test]
async fn mutual_node_identifies_the_client() {
    let installation = Installation::new();
    let expected = pem::certificates(&installation.file("alice.pem")).unwrap();
    for name in ["localhost", "127.0.0.1"] {
        let outcome =
            handshake(&installation.server(), &installation.client_as("alice"), name).await;
        let (tenant, fingerprint) = outcome.accepted().unwrap();
        assert_eq!(tenant.as_str(), "alice");
        assert_eq!(fingerprint, Fingerprint::of(&expected[0]));
    }
}

#[tokio::test]
async fn client_added_later_is_accepted() {
    let installation = Installation::new();
    DevelopmentCertificates::new(installation.0.path()).client("bob").create().unwrap();
    let outcome =
        handshake(&installation.server(), &installation.client_as("bob"), "localhost").await;
    assert_eq!(outcome.accepted().unwrap().0.as_str(), "bob");
}

#[tokio::test]
async fn server_name_can_be_overridden() {
    let installation = Installation::new();
    let client = installation.client_as("alice").server_name("localhost");
    handshake(&installation.server(), &client, "10.0.0.5").await.accepted().unwrap();
}

#[tokio::test]
async fn client_without_certificate_is_refused() {
    let installation = Installation::new();
    let outcome = handshake(&installation.server(), &installation.anonymous(), "localhost").await;
    outcome.server_refused(AlertDescription::CertificateRequired);
}

#[tokio::test]
async fn client_of_another_authority_is_refused() {
    let (installation, other) = (Installation::new(), Installation::new());
    let client = installation
        .anonymous()
        .client_certificate(other.file("alice.pem"), other.file("alice.key"));
    let outcome = handshake(&installation.server(), &client, "localhost").await;
    outcome.server_refused(AlertDescription::UnknownCA);
}

#[tokio::test]
async fn expired_client_is_refused() {
    let installation = Installation::new();
    installation.issue("late", expired);
    let outcome =
        handshake(&installation.server(), &installation.client_as("late"), "localhost").await;
    outcome.server_refused(AlertDescription::CertificateExpired);
}

#[tokio::test]
async fn node_certificate_does_not_act_as_a_client() {
    let installation = Installation::new();
    let outcome =
        handshake(&installation.server(), &installation.client_as("node"), "localhost").await;
    assert!(outcome.client.is_err());
    assert!(outcome.server.is_err());
}

#[tokio::test]
async fn client_whose_certificate_names_no_tenant_is_not_identified() {
    let installation = Installation::new();
    installation.issue("nameless", |params| {
        params.distinguished_name.push(DnType::CommonName, "no tenant");
    });
    let client = installation.client_as("nameless");
    let identity = handshake(&installation.server(), &client, "localhost").await.accepted();
    assert!(matches!(identity, Err(IdentityError::Tenant(_))), "{identity:?}");
}

#[tokio::test]
async fn node_of_another_authority_is_refused() {
    let (installation, other) = (Installation::new(), Installation::new());
    let outcome = handshake(&other.server(), &installation.client_as("alice"), "localhost").await;
    outcome.client_refused(AlertDescription::UnknownCA);
    let outcome = handshake(&ServerTls::insecure(), &installation.anonymous(), "localhost").await;
    assert!(outcome.client.is_err());
}

#[tokio::test]
async fn wrong_server_name_is_refused() {
    let installation = Installation::new();
    for name in ["other.example", "10.0.0.5"] {
        let outcome =
            handshake(&installation.server(), &installation.client_as("alice"), name).await;
        outcome.client_refused(AlertDescription::BadCertificate);
    }
}

#[tokio::test]
async fn expired_node_is_refused() {
    let installation = Installation::new();
    installation.issue("late", expired);
    let server = installation.server_as("late");
    let outcome = handshake(&server, &installation.client_as("alice"), "localhost").await;
    outcome.client_refused(AlertDescription::CertificateExpired);
}

#[tokio::test]
async fn client_certificate_does_not_act_as_a_node() {
    let installation = Installation::new();
    installation.issue("mallory", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let server = installation.server_as("mallory");
    let outcome = handshake(&server, &installation.client_as("alice"), "localhost").await;
    assert!(matches!(outcome.client, Err(ConnectionError::TransportError(_))));
}

#[tokio::test]
async fn loopback_client_refuses_a_node_without_the_certificates_key() {
    let installation = Installation::new();
    let chain = pem::certificates(&installation.file("node.pem")).unwrap();
    let key = pem::private_key(&installation.file("alice.key")).unwrap();
    let key = tls::provider().key_provider.load_private_key(key).unwrap();
    let stolen = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    let mut server = rustls::ServerConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(stolen));
    server.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicServerConfig::try_from(server).unwrap();
    let server = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    let client = ClientTls::loopback().config_for(loopback()).unwrap();
    let outcome = connect(&ServerTls::insecure(), server, client, "localhost").await;
    outcome.client_refused(AlertDescription::DecryptError);
}

#[tokio::test]
async fn client_or_node_of_another_protocol_is_refused() {
    let (tls, client) = (ServerTls::insecure(), ClientTls::loopback());
    let mut other = client.crypto_for(loopback()).unwrap();
    for protocols in [vec![b"cuda-lease/2".to_vec()], Vec::new()] {
        other.alpn_protocols = protocols;
        let crypto = QuicClientConfig::try_from(other.clone()).unwrap();
        let server = tls.config_for(loopback()).unwrap();
        let client = quinn::ClientConfig::new(Arc::new(crypto));
        let outcome = connect(&tls, server, client, "localhost").await;
        outcome.server_refused(AlertDescription::NoApplicationProtocol);
    }
    let mut other = tls.crypto().unwrap();
    other.alpn_protocols = vec![b"cuda-lease/2".to_vec()];
    let crypto = QuicServerConfig::try_from(other).unwrap();
    let server = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    let outcome = connect(&tls, server, client.config_for(loopback()).unwrap(), "localhost").await;
    outcome.server_refused(AlertDescription::NoApplicationProtocol);
}

#[tokio::test]
async fn new_configuration_reads_the_files_again() {
    let installation = Installation::new();
    let (server, client) = (installation.server(), installation.client_as("alice"));
    handshake(&server, &client, "localhost").await.accepted().unwrap();
    installation.issue("node", |params| {
        params.subject_alt_names =
            vec!["renewed.example".to_owned().try_into().map(rcgen::SanType::DnsName).unwrap()];
    });
    handshake(&server, &client, "renewed.example").await.accepted().unwrap();
    let outcome = handshake(&server, &client, "localhost").await;
    outcome.client_refused(AlertDescription::BadCertificate);
}

/// A handshake in memory without QUIC, which can show other versions of TLS. Returns the client's kind of handshake.
fn in_memory(
    client: Arc<rustls::ClientConfig>,
    server: Arc<rustls::ServerConfig>,
) -> Result<HandshakeKind, rustls::Error> {
    let mut client = rustls::ClientConnection::new(client, "localhost".try_into().unwrap())?;
    let mut server = rustls::ServerConnection::new(server)?;
    let transfer = |write: &mut dyn FnMut(&mut Vec<u8>) -> io::Result<usize>| {
        let mut bytes = Vec::new();
        write(&mut bytes).unwrap();
        bytes
    };
    while client.wants_write() || server.wants_write() {
        let bytes = transfer(&mut |bytes| client.write_tls(bytes));
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets()?;
        let bytes = transfer(&mut |bytes| server.write_tls(bytes));
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    assert_eq!(client.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    Ok(client.handshake_kind().unwrap())
}

#[test]
fn tls_1_2_is_refused_by_both_sides() {
    let server = Arc::new(ServerTls::insecure().crypto().unwrap());
    let client = Arc::new(ClientTls::loopback().crypto_for(loopback()).unwrap());
    in_memory(client.clone(), server.clone()).unwrap();

    let installation = Installation::new();
    let roots = tls::authorities(&installation.file("ca.pem")).unwrap();
    let old_client = rustls::ClientConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let error = in_memory(Arc::new(old_client), server).unwrap_err();
    assert_eq!(error, rustls::Error::PeerIncompatible(PeerIncompatible::Tls12NotOfferedOrEnabled));

    let chain = pem::certificates(&installation.file("node.pem")).unwrap();
    let key = pem::private_key(&installation.file("node.key")).unwrap();
    let old_server = rustls::ServerConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let error = in_memory(client, Arc::new(old_server)).unwrap_err();
    assert_eq!(error, rustls::Error::PeerIncompatible(PeerIncompatible::Tls12NotOfferedOrEnabled));
}

#[test]
fn node_resumes_no_session_and_takes_no_early_data() {
    let server = Arc::new(ServerTls::insecure().crypto().unwrap());
    assert_eq!((server.max_early_data_size, server.send_tls13_tickets), (0, 0));
    let mut client = ClientTls::loopback().crypto_for(loopback()).unwrap();
    client.resumption = rustls::client::Resumption::in_memory_sessions(8);
    let client = Arc::new(client);
    for _ in 0..2 {
        assert_eq!(in_memory(client.clone(), server.clone()), Ok(HandshakeKind::Full));
    }
}

#[test]
fn client_resumes_no_session_and_sends_no_early_data() {
    let mut server = ServerTls::insecure().crypto().unwrap();
    server.send_tls13_tickets = 2;
    server.session_storage = rustls::server::ServerSessionMemoryCache::new(8);
    let client = ClientTls::loopback().crypto_for(loopback()).unwrap();
    assert!(!client.enable_early_data);
    let (client, server) = (Arc::new(client), Arc::new(server));
    for _ in 0..2 {
        assert_eq!(in_memory(client.clone(), server.clone()), Ok(HandshakeKind::Full));
    }
}
