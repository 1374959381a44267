//! Real QUIC handshakes over 127.0.0.1 between [`ClientTls`] and [`ServerTls`], accepted and refused.

use std::fs;
use std::io::{self, Write};
use std::iter;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ConnectionError, Endpoint, TransportErrorCode};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber,
};
use rustls::pki_types::CertificateDer;
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

    fn authority(&self) -> Issuer<'static, KeyPair> {
        let ca_key = KeyPair::from_pem(&fs::read_to_string(self.file("ca.key")).unwrap()).unwrap();
        let ca = fs::read_to_string(self.file("ca.pem")).unwrap();
        Issuer::from_ca_cert_pem(&ca, ca_key).unwrap()
    }

    /// A node that reads these lists of revoked certificates.
    fn server_with_lists(&self, names: &[&str]) -> ServerTls {
        names.iter().fold(self.server(), |server, name| server.revoked(self.file(name)))
    }

    /// Revokes the certificate `NAME.pem` on the list `ca.crl`.
    fn revoke(&self, name: &str) {
        DevelopmentCertificates::new(self.0.path()).client(name).revoke().unwrap();
    }

    /// Issues a certificate of the authority that `change` may alter, to `NAME.pem` and `NAME.key`.
    fn issue(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let issuer = self.authority();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        self.write(name, &certificate.pem(), &key);
    }

    /// The certificates of `NAME.pem` with any key.
    fn without_checks(&self, name: &str, key: &str) -> CertifiedKey {
        let chain = pem::certificates(&self.file(&format!("{name}.pem"))).unwrap();
        let key = pem::private_key(&self.file(&format!("{key}.key"))).unwrap();
        CertifiedKey::new(chain, tls::provider().key_provider.load_private_key(key).unwrap())
    }

    /// Writes the certificates to `NAME.pem`, and the key to `NAME.key`, which only its owner can read.
    fn write(&self, name: &str, certificates: &str, key: &KeyPair) {
        fs::write(self.file(&format!("{name}.pem")), certificates).unwrap();
        let path = self.file(&format!("{name}.key"));
        let mut file = fs::OpenOptions::new();
        let file = file.write(true).create(true).truncate(true).mode(0o600);
        file.open(path).unwrap().write_all(key.serialize_pem().as_bytes()).unwrap();
    }
}

fn expired(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
}

type Identity = Result<ClientIdentity, IdentityError>;

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
    let (server_config, _) = server.config_for(loopback()).unwrap();
    connect(server, server_config, client.config_for(loopback()).unwrap(), &name).await
}

#[tokio::test]
async fn insecure_node_and_loopback_client_connect() {
    let outcome = handshake(&ServerTls::insecure(), &ClientTls::loopback(), "any.example").await;
    let identity = outcome.accepted().unwrap();
    assert_eq!(identity.tenant.as_str(), "local");
    assert_eq!(identity.key, Fingerprint::UNAUTHENTICATED);
    assert_eq!(identity.expires(), None);
}

#[tokio::test]
async fn mutual_node_identifies_the_client() {
    let installation = Installation::new();
    let expected = pem::certificates(&installation.file("alice.pem")).unwrap();
    for name in ["localhost", "127.0.0.1"] {
        let outcome =
            handshake(&installation.server(), &installation.client_as("alice"), name).await;
        let identity = outcome.accepted().unwrap();
        assert_eq!(identity.tenant.as_str(), "alice");
        assert_eq!(identity.key, Fingerprint::of(&expected[0]).unwrap());
        let left = identity.expires().unwrap().duration_since(SystemTime::now()).unwrap();
        assert_eq!((left.as_secs() + 3600) / 86_400, 365);
    }
}

#[tokio::test]
async fn client_added_later_is_accepted() {
    let installation = Installation::new();
    DevelopmentCertificates::new(installation.0.path()).client("bob").create().unwrap();
    let outcome =
        handshake(&installation.server(), &installation.client_as("bob"), "localhost").await;
    assert_eq!(outcome.accepted().unwrap().tenant.as_str(), "bob");
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
async fn client_that_is_not_yet_valid_is_refused() {
    let installation = Installation::new();
    installation.issue("early", |params| {
        params.not_before = rcgen::date_time_ymd(2900, 1, 1);
        params.not_after = rcgen::date_time_ymd(2901, 1, 1);
    });
    let client = installation.client_as("early");
    let outcome = handshake(&installation.server(), &client, "localhost").await;
    let Err(ConnectionError::ConnectionClosed(close)) = &outcome.client else {
        panic!("client: {:?}", outcome.client)
    };
    // The alert is that of an expired certificate.
    assert!(String::from_utf8_lossy(&close.reason).contains("not valid yet"), "{close}");
    outcome.server_refused(AlertDescription::CertificateExpired);
}

#[tokio::test]
async fn node_certificate_does_not_act_as_a_client() {
    let installation = Installation::new();
    let outcome =
        handshake(&installation.server(), &installation.client_as("node"), "localhost").await;
    outcome.server_refused(AlertDescription::UnsupportedCertificate);
}

#[tokio::test]
async fn client_without_the_extended_key_usage_is_not_identified() {
    let installation = Installation::new();
    installation.issue("alice", |params| params.extended_key_usages.clear());
    installation.issue("any", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any];
    });
    let (server, client) = (installation.server(), installation.client_as("alice"));
    let identity = handshake(&server, &client, "localhost").await.accepted();
    assert!(matches!(identity, Err(IdentityError::NotForClients)), "{identity:?}");
    let outcome = handshake(&server, &installation.client_as("any"), "localhost").await;
    outcome.server_refused(AlertDescription::UnsupportedCertificate);
}

#[tokio::test]
async fn self_signed_client_is_refused() {
    let installation = Installation::new();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "alice");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    installation.write("self", &params.self_signed(&key).unwrap().pem(), &key);
    let client = installation.client_as("self");
    let outcome = handshake(&installation.server(), &client, "localhost").await;
    outcome.server_refused(AlertDescription::UnknownCA);
}

#[tokio::test]
async fn client_whose_certificate_names_no_tenant_is_not_identified() {
    let installation = Installation::new();
    installation.issue("words", |params| {
        params.distinguished_name.push(DnType::CommonName, "no tenant");
    });
    installation.issue("escape", |params| {
        params.distinguished_name.push(DnType::CommonName, "alice\u{1b}[31m");
    });
    installation.issue("long", |params| {
        params.distinguished_name.push(DnType::CommonName, "a".repeat(2000));
    });
    installation.issue("empty", |params| {
        params.distinguished_name.push(DnType::CommonName, "");
    });
    // Its DNS name is no tenant.
    installation.issue("none", |params| params.distinguished_name = DistinguishedName::new());
    installation.issue("two", |params| {
        params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), "bob");
    });
    for name in ["words", "escape", "long", "empty", "none", "two"] {
        let client = installation.client_as(name);
        let identity = handshake(&installation.server(), &client, "localhost").await.accepted();
        match (name, &identity) {
            ("none", Err(IdentityError::NoName))
            | ("two", Err(IdentityError::AmbiguousName { count: 2 }))
            | ("words" | "escape" | "long" | "empty", Err(IdentityError::Tenant(_))) => {}
            _ => panic!("{name}: {identity:?}"),
        }
    }
}

#[tokio::test]
async fn revoked_client_is_refused() {
    let installation = Installation::new();
    DevelopmentCertificates::new(installation.0.path()).client("bob").create().unwrap();
    let (alice, bob) = (installation.client_as("alice"), installation.client_as("bob"));
    let server = installation.server_with_lists(&["ca.crl"]);
    handshake(&server, &alice, "localhost").await.accepted().unwrap();
    installation.revoke("alice");
    let outcome = handshake(&server, &alice, "localhost").await;
    outcome.server_refused(AlertDescription::CertificateRevoked);
    handshake(&server, &bob, "localhost").await.accepted().unwrap();
    // The same in DER.
    let list = pem::revocation_lists(&installation.file("ca.crl")).unwrap();
    fs::write(installation.file("ca.der"), &list[0]).unwrap();
    let server = installation.server_with_lists(&["ca.der"]);
    let outcome = handshake(&server, &alice, "localhost").await;
    outcome.server_refused(AlertDescription::CertificateRevoked);
}

#[tokio::test]
async fn list_stays_in_force_after_its_next_update() {
    let installation = Installation::new();
    let alice = pem::certificates(&installation.file("alice.pem")).unwrap();
    let (_, alice) = x509_parser::parse_x509_certificate(&alice[0]).unwrap();
    let list = CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2020, 1, 1),
        next_update: rcgen::date_time_ymd(2021, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: SerialNumber::from_slice(alice.raw_serial()),
            revocation_time: rcgen::date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&installation.authority()).unwrap();
    fs::write(installation.file("old.crl"), list.pem().unwrap()).unwrap();
    installation.issue("bob", |_| {});
    let server = installation.server_with_lists(&["old.crl"]);
    let outcome = handshake(&server, &installation.client_as("alice"), "localhost").await;
    outcome.server_refused(AlertDescription::CertificateRevoked);
    handshake(&server, &installation.client_as("bob"), "localhost").await.accepted().unwrap();
}

#[test]
fn unusable_list_is_refused_with_the_name_of_its_file() {
    let (installation, other) = (Installation::new(), Installation::new());
    let refused =
        |names: &[&str]| installation.server_with_lists(names).config_for(loopback()).unwrap_err();
    fs::copy(other.file("ca.crl"), installation.file("other.crl")).unwrap();
    let error = refused(&["other.crl"]);
    assert!(matches!(error, TlsError::NoListOfAuthority { .. }), "{error}");
    assert!(error.to_string().contains("ca.pem"), "{error}");
    assert!(
        installation.server_with_lists(&["other.crl", "ca.crl"]).config_for(loopback()).is_ok()
    );
    let list = pem::revocation_lists(&installation.file("ca.crl")).unwrap();
    let mut forged = list[0].to_vec();
    *forged.last_mut().unwrap() ^= 1;
    fs::write(installation.file("forged.crl"), forged).unwrap();
    let error = refused(&["forged.crl"]);
    assert!(matches!(error, TlsError::ForgedList { .. }), "{error}");
    assert!(error.to_string().contains("forged.crl"), "{error}");
    fs::write(installation.file("bad.crl"), [0x30, 0x82, 0, 1, 0]).unwrap();
    let error = refused(&["ca.crl", "bad.crl"]);
    assert!(matches!(error, TlsError::RevocationList { .. }), "{error}");
    for name in ["bad.crl", "absent.crl", "ca.pem"] {
        let error = refused(&["ca.crl", name]);
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// Issues the certificate of an authority below `issuer`, or of a root.
fn authority(
    name: &str,
    issuer: Option<&Issuer<'static, KeyPair>>,
) -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().unwrap();
    let certificate = match issuer {
        Some(issuer) => params.signed_by(&key, issuer).unwrap(),
        None => params.self_signed(&key).unwrap(),
    };
    (certificate.pem(), Issuer::new(params, key))
}

#[tokio::test]
async fn chain_with_an_intermediate_authority_is_verified_to_its_root() {
    let installation = Installation::new();
    let (root_pem, root) = authority("root", None);
    let (middle_pem, middle) = authority("middle", Some(&root));
    fs::write(installation.file("root.pem"), &root_pem).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "alice");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let own = params.signed_by(&key, &middle).unwrap().pem();
    installation.write("short", &own, &key);
    installation.write("long", &format!("{own}{middle_pem}"), &key);
    let file = |name: &str| installation.file(name);
    let server = ServerTls::mutual(file("node.pem"), file("node.key"), file("root.pem"));
    let short = handshake(&server, &installation.client_as("short"), "localhost").await;
    short.server_refused(AlertDescription::UnknownCA);
    let long = installation.client_as("long");
    let identity = handshake(&server, &long, "localhost").await.accepted().unwrap();
    assert_eq!(identity.tenant.as_str(), "alice");
    // Each authority of the chain needs a list.
    for (name, issuer) in [("root.crl", &root), ("middle.crl", &middle)] {
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2020, 1, 1),
            next_update: rcgen::date_time_ymd(2900, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        fs::write(file(name), list.signed_by(issuer).unwrap().pem().unwrap()).unwrap();
    }
    let with_root = server.revoked(file("root.crl"));
    let outcome = handshake(&with_root, &long, "localhost").await;
    outcome.server_refused(AlertDescription::UnknownCA);
    let with_both = with_root.revoked(file("middle.crl"));
    handshake(&with_both, &long, "localhost").await.accepted().unwrap();
}

#[tokio::test]
async fn chains_within_the_limit_are_verified_by_both_sides() {
    let installation = Installation::new();
    let (mut issuer, mut others) = (installation.authority(), String::new());
    for number in 1..=chain_limit::MAX_AUTHORITIES + 1 {
        let (pem, next) = authority(&format!("middle {number}"), Some(&issuer));
        (issuer, others) = (next, pem + &others);
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let own = params.signed_by(&key, &issuer).unwrap().pem();
        installation.write("both", &format!("{own}{others}"), &key);
        let (server, client) = (installation.server_as("both"), installation.client_as("both"));
        if number <= chain_limit::MAX_AUTHORITIES {
            handshake(&server, &client, "localhost").await.accepted().unwrap();
            continue;
        }
        // The owner of the file gets the error before the other side would refuse it.
        let errors =
            (server.config_for(loopback()).map(drop), client.config_for(loopback()).map(drop));
        for error in [errors.0.unwrap_err(), errors.1.unwrap_err()] {
            assert!(matches!(error, TlsError::Chain { .. }), "{error}");
            assert!(error.to_string().contains("both.pem"), "{error}");
        }
    }
}

/// The TLS library would look for paths in every order of the certificates.
#[tokio::test]
async fn chain_beyond_the_limit_is_refused_before_it_is_read() {
    use AlertDescription::{BadCertificate, CertificateUnknown};
    let installation = Installation::new();
    let damaged = |count, bytes| vec![CertificateDer::from(vec![0; bytes]); count];
    for (chain, alert) in [
        (damaged(5, 1), BadCertificate),
        (damaged(6, 1), CertificateUnknown),
        (damaged(1, 16 << 10), BadCertificate),
        (damaged(2, 8 << 10), BadCertificate),
        (damaged(1, (16 << 10) + 1), CertificateUnknown),
        (damaged(2, (8 << 10) + 1), CertificateUnknown),
    ] {
        let presented = CertifiedKey { cert: chain, ..installation.without_checks("node", "node") };
        let (mut client, _) = installation.anonymous().crypto_for(loopback()).unwrap();
        client.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(presented.clone()));
        let client = QuicClientConfig::try_from(client).unwrap();
        let client = quinn::ClientConfig::new(Arc::new(client));
        let (tls, server) = (installation.server(), installation.server().config_for(loopback()));
        let of_client = connect(&tls, server.unwrap().0, client, "localhost").await;
        let client = installation.client_as("alice").config_for(loopback()).unwrap();
        let server = server_without_checks(presented);
        let of_node = connect(&ServerTls::insecure(), server, client, "localhost").await;
        if alert == CertificateUnknown {
            let errors = (of_client.server.as_ref().map(drop), of_node.client.as_ref());
            for error in [errors.0.unwrap_err(), errors.1.unwrap_err()] {
                let reason = error.to_string();
                assert!(reason.contains("limit is 4 authorities and 16384 bytes"), "{reason}");
            }
        }
        of_client.server_refused(alert);
        of_node.client_refused(alert);
    }
}

/// Each of them could have been signed by each other one, and by the trusted authority of that name.
#[test]
fn authorities_of_one_name_are_refused_before_a_path_is_looked_for() {
    let installation = Installation::new();
    let of_name = |name| {
        let (pem, _) = authority(name, None);
        let file = installation.file("chain.pem");
        fs::write(&file, pem).unwrap();
        pem::certificates(&file).unwrap().remove(0)
    };
    let own = pem::certificates(&installation.file("alice.pem")).unwrap().remove(0);
    let check = |names: [&'static str; 3]| {
        let chain: Vec<_> = iter::once(own.clone()).chain(names.map(of_name)).collect();
        chain_limit::check(&chain)
    };
    check(["one", "two", "three"]).unwrap();
    let error = check(["one", "two", "one"]).unwrap_err();
    assert!(matches!(error, ChainError::SameName), "{error}");
}

#[tokio::test]
async fn certificate_of_a_connected_client_is_checked_again() {
    let installation = Installation::new();
    let server = installation.server_with_lists(&["ca.crl"]);
    let client = installation.client_as("alice");
    let identity = handshake(&server, &client, "localhost").await.accepted().unwrap();
    let recheck = |server: &ServerTls| {
        let (_, verifier) = server.config_for(loopback()).unwrap();
        verifier.recheck(&identity)
    };
    recheck(&server).unwrap();
    installation.revoke("alice");
    assert!(matches!(recheck(&server), Err(IdentityError::Revoked)));
    let other = recheck(&Installation::new().server());
    assert!(matches!(other, Err(IdentityError::Invalid(_))), "{other:?}");
    recheck(&ServerTls::insecure()).unwrap();
    // The same client with a certificate that has expired meanwhile.
    installation.issue("late", expired);
    let chain = pem::certificates(&installation.file("late.pem")).unwrap();
    let late = ClientIdentity::of(chain).unwrap();
    let (_, verifier) = installation.server().config_for(loopback()).unwrap();
    let ended = verifier.recheck(&late);
    assert!(matches!(ended, Err(IdentityError::Expired)), "{ended:?}");
    assert_eq!(late.next_end(SystemTime::now()), None);
    assert_eq!(late.next_end(SystemTime::UNIX_EPOCH), late.expires());
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
    installation.issue("unstated", |params| params.extended_key_usages.clear());
    for name in ["alice", "unstated"] {
        let error = installation.server_as(name).config_for(loopback()).unwrap_err();
        assert!(matches!(error, TlsError::NotForNodes { .. }), "{error}");
        assert!(error.to_string().contains(&format!("{name}.pem")), "{error}");
    }
    // A node that does not check its own certificate.
    installation.issue("mallory", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let server = server_without_checks(installation.without_checks("mallory", "mallory"));
    let client = installation.anonymous().config_for(loopback()).unwrap();
    let outcome = connect(&ServerTls::insecure(), server, client, "localhost").await;
    outcome.client_refused(AlertDescription::UnsupportedCertificate);
}

/// A server with any certificate and key.
fn server_without_checks(presented: CertifiedKey) -> quinn::ServerConfig {
    let resolver = SingleCertAndKey::from(presented);
    let mut server = rustls::ServerConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    server.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicServerConfig::try_from(server).unwrap();
    quinn::ServerConfig::with_crypto(Arc::new(crypto))
}

#[tokio::test]
async fn loopback_client_refuses_a_node_without_the_certificates_key() {
    let installation = Installation::new();
    let server = server_without_checks(installation.without_checks("node", "alice"));
    let client = ClientTls::loopback().config_for(loopback()).unwrap();
    let outcome = connect(&ServerTls::insecure(), server, client, "localhost").await;
    outcome.client_refused(AlertDescription::DecryptError);
}

#[tokio::test]
async fn client_or_node_of_another_protocol_is_refused() {
    let (tls, client) = (ServerTls::insecure(), ClientTls::loopback());
    let (mut other, _) = client.crypto_for(loopback()).unwrap();
    for protocols in [vec![b"cuda-lease/2".to_vec()], Vec::new()] {
        other.alpn_protocols = protocols;
        let crypto = QuicClientConfig::try_from(other.clone()).unwrap();
        let (server, _) = tls.config_for(loopback()).unwrap();
        let client = quinn::ClientConfig::new(Arc::new(crypto));
        let outcome = connect(&tls, server, client, "localhost").await;
        outcome.server_refused(AlertDescription::NoApplicationProtocol);
    }
    let (mut other, _) = tls.crypto().unwrap();
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
    let server = Arc::new(ServerTls::insecure().crypto().unwrap().0);
    let client = Arc::new(ClientTls::loopback().crypto_for(loopback()).unwrap().0);
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
    let server = Arc::new(ServerTls::insecure().crypto().unwrap().0);
    assert_eq!((server.max_early_data_size, server.send_tls13_tickets), (0, 0));
    let (mut client, _) = ClientTls::loopback().crypto_for(loopback()).unwrap();
    client.resumption = rustls::client::Resumption::in_memory_sessions(8);
    let client = Arc::new(client);
    for _ in 0..2 {
        assert_eq!(in_memory(client.clone(), server.clone()), Ok(HandshakeKind::Full));
    }
}

#[test]
fn client_resumes_no_session_and_sends_no_early_data() {
    let (mut server, _) = ServerTls::insecure().crypto().unwrap();
    server.send_tls13_tickets = 2;
    server.session_storage = rustls::server::ServerSessionMemoryCache::new(8);
    let (client, _) = ClientTls::loopback().crypto_for(loopback()).unwrap();
    assert!(!client.enable_early_data);
    let (client, server) = (Arc::new(client), Arc::new(server));
    for _ in 0..2 {
        assert_eq!(in_memory(client.clone(), server.clone()), Ok(HandshakeKind::Full));
    }
}
