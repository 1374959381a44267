//! Identity over time: certificates that expire, are renewed or are revoked, and reloads of a node.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    process::{Command, Output},
    time::{Duration, SystemTime},
};

use cuda_core::{Error, protocol::Status};
use cuda_lease::{
    LeaseBuilder, NodeClient,
    authority::DevelopmentCertificates,
    internals::transport::CERTIFICATE_ENDED,
    wire::{Hello, VERSION, Welcome},
};
use quinn::{ConnectionError, TransportConfig};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType,
};
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use crate::{
    harness::{LONG, Node, check, program, wait_until},
    raw::{RawClient, block_on},
    tenants::{certificates, client, secured},
};

/// The seconds of a certificate whose end a test waits for. A client connects within them.
const SHORT: u64 = 8;

/// The seconds of any other certificate.
const DAY: u64 = 86_400;

pub fn new_key() -> KeyPair {
    KeyPair::generate().unwrap()
}

/// Issues a client certificate of the authority in the folder, valid for this time, to `NAME.pem` and `NAME.key`. Each
/// file is replaced at once, as a program that renews certificates does.
pub fn issue(folder: &Path, name: &str, tenant: &str, seconds: u64, key: &KeyPair) {
    issue_with(folder, name, key, |params| {
        params.distinguished_name.push(DnType::CommonName, tenant);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = params.not_before + Duration::from_secs(3600 + seconds);
    });
}

fn issue_with(folder: &Path, name: &str, key: &KeyPair, set: impl FnOnce(&mut CertificateParams)) {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let ca_key = KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&read("ca.pem"), ca_key).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let at = |since_epoch| rcgen::date_time_ymd(1970, 1, 1) + since_epoch;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.not_before = at(now - Duration::from_secs(3600));
    set(&mut params);
    // A renewed certificate has another number, whatever its key is.
    params.serial_number = Some((now.as_nanos() as u64).into());
    let certificate = params.signed_by(key, &issuer).unwrap();
    let write = |end: &str, contents: String| {
        let temporary = folder.join("temporary");
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        file.as_mut().unwrap().write_all(contents.as_bytes()).unwrap();
        fs::rename(temporary, folder.join(format!("{name}.{end}"))).unwrap();
    };
    write("pem", certificate.pem());
    write("key", key.serialize_pem());
}

/// A node with certificates, quotas, the status endpoints and an operator socket.
struct Place {
    node: Node,
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = certificates();
        let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (list, quotas, socket) = (file("ca.crl"), file("quotas.toml"), file("operator"));
        fs::write(&quotas, "").unwrap();
        let arguments = ["--crl", &list, "--quotas", &quotas, "--operator-socket", &socket];
        let outputs = ["--metrics", "127.0.0.1:0", "--audit", &file("audit")];
        let node = secured(folder.path(), &[&arguments[..], &outputs].concat());
        Self { node, folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn issue(&self, name: &str, tenant: &str, seconds: u64, key: &KeyPair) {
        issue(self.path(), name, tenant, seconds, key);
    }

    fn revoke(&self, name: &str) {
        DevelopmentCertificates::new(self.path()).client(name).revoke().unwrap();
    }

    fn operator(&self, words: &[&str]) -> Output {
        let mut command = Command::new(program());
        command.args(words).arg("--socket").arg(self.path().join("operator")).output().unwrap()
    }

    /// Reloads the node. Returns the error of the command.
    fn try_reload(&self) -> Result<(), String> {
        let Output { status, stderr, .. } = self.operator(&["reload"]);
        if status.success() { Ok(()) } else { Err(String::from_utf8(stderr).unwrap()) }
    }

    fn lease(&self, name: &str) -> LeaseBuilder {
        self.node.lease().tls(client(self.path(), name))
    }

    fn client(&self, name: &str) -> NodeClient {
        NodeClient::connect(&self.node.address, client(self.path(), name)).unwrap()
    }

    async fn raw(&self, name: &str) -> RawClient {
        let tls = client(self.path(), name);
        let mut client = RawClient::connect_as(&self.node.address, tls, TransportConfig::default())
            .await
            .unwrap();
        let hello = Hello { oldest: VERSION, newest: VERSION, features: 0, program: "test".into() };
        client.control.frame(Hello::OPCODE, 0, 1, |out| hello.encode(out)).await;
        client
    }

    fn resumed(&self) -> f64 {
        self.node.metric("cuda_node_connections_resumed_total")
    }
}

/// The error of a lease that has ended, when it has.
fn end(lease: &cuda_lease::Lease) -> Error {
    let mut error = None;
    wait_until("the lease has ended", || {
        error = lease.device().new_stream().map(drop).err();
        error.is_some()
    });
    error.unwrap()
}

/// Waits until the node closes a connection because of its certificate. Returns the reason.
async fn closed(client: &RawClient) -> String {
    let closed = tokio::time::timeout(LONG, client.connection.closed()).await.unwrap();
    let ConnectionError::ApplicationClosed(close) = closed else { panic!("{closed}") };
    assert_eq!(close.error_code, CERTIFICATE_ENDED);
    String::from_utf8(close.reason.to_vec()).unwrap()
}

#[test]
fn connection_ends_with_its_certificate_and_the_greeting_states_when() {
    let place = Place::new();
    place.issue("short", "alice", SHORT, &new_key());
    block_on(async {
        let mut short = place.raw("short").await;
        let mut bob = place.raw("bob").await;
        let (_, body) = short.control.reply().await.unwrap();
        let left = Welcome::decode(&body).unwrap().certificate_ends_in_ms.unwrap();
        assert!(left > 0 && left <= 1000 * (SHORT + 1), "{left}");
        let reason = closed(&short).await;
        assert!(reason.contains("certificate of this client has expired"), "{reason}");
        let (_, body) = bob.control.reply().await.unwrap();
        let left = Welcome::decode(&body).unwrap().certificate_ends_in_ms.unwrap();
        assert_eq!((left / 1000 + 3600) / DAY, 365);
        assert!(bob.connection.close_reason().is_none());
    });
}

#[test]
fn certificate_of_a_node_for_another_host_is_named() {
    let folder = certificates();
    issue_with(folder.path(), "node", &new_key(), |params| {
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 2].into())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_after = params.not_before + Duration::from_secs(DAY);
    });
    let node = secured(folder.path(), &[]);
    let lease = node.lease().tls(client(folder.path(), "alice"));
    let error = lease.acquire_blocking().unwrap_err();
    assert_eq!(error.status(), Some(Status::Unauthorized), "{error}");
    assert!(error.to_string().contains("use a host name that the certificate states"), "{error}");
}

#[test]
fn node_with_an_expired_certificate_says_so_and_so_do_its_clients() {
    let folder = certificates();
    issue_with(folder.path(), "node", &new_key(), |params| {
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_after = params.not_before + Duration::from_secs(60);
    });
    let node = secured(folder.path(), &[]);
    let lease = node.lease().tls(client(folder.path(), "alice"));
    let error = lease.acquire_blocking().unwrap_err();
    assert_eq!(error.status(), Some(Status::Unauthorized), "{error}");
    assert!(error.to_string().contains("certificate of the node is not valid at"), "{error}");
    drop(node);
    // A node that cannot listen ends at once, with its log.
    let file = |name: &str| folder.path().join(name);
    let output = Command::new(program())
        .args(["--listen", "192.0.2.1:1", "--device", "cpu", "--cert"])
        .arg(file("node.pem"))
        .arg("--key")
        .arg(file("node.key"))
        .arg("--client-ca")
        .arg(file("ca.pem"))
        .env("RUST_LOG", "warn")
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains("certificate of this node has expired"), "{log}");
}

#[test]
fn lease_goes_on_with_a_renewed_certificate_of_the_same_or_a_new_key() {
    let place = Place::new();
    let (old, new) = (new_key(), new_key());
    let acquire = |name| {
        place.issue(name, "alice", SHORT, &old);
        place.lease(name).acquire_blocking().unwrap()
    };
    let leases = [acquire("same"), acquire("new")];
    place.issue("same", "alice", DAY, &old);
    place.issue("new", "alice", DAY, &new);
    wait_until("the sessions are resumed", || place.resumed() == 2.0);
    for lease in leases {
        check(&lease);
        lease.renew_blocking(60).unwrap();
        check(&lease);
        lease.free();
    }
}

#[test]
fn lease_without_a_renewed_certificate_is_lost_with_the_reason() {
    let place = Place::new();
    place.issue("short", "alice", SHORT, &new_key());
    let lease = place.lease("short").acquire_blocking().unwrap();
    let error = end(&lease);
    assert!(error.to_string().contains("certificate of this client has expired"), "{error}");
}

#[test]
fn revoked_certificates_lose_their_connections_at_a_reload_and_others_keep_theirs() {
    let place = Place::new();
    let lease = place.lease("bob").acquire_blocking().unwrap();
    block_on(async {
        let alice = place.raw("alice").await;
        place.revoke("alice");
        let hangup = ["-HUP", &place.node.pid().to_string()];
        assert!(Command::new("kill").args(hangup).status().unwrap().success());
        let reason = closed(&alice).await;
        assert!(reason.contains("certificate of this client was revoked"), "{reason}");
    });
    check(&lease);
    assert_eq!(place.resumed(), 0.0);
    let refused = place.lease("alice").acquire_blocking().unwrap_err();
    assert_eq!(refused.status(), Some(Status::Unauthorized), "{refused}");
    assert!(refused.to_string().contains("certificate of this client was revoked"), "{refused}");
}

#[test]
fn lease_of_a_revoked_certificate_goes_on_with_another_one() {
    let place = Place::new();
    place.issue("worker", "alice", DAY, &new_key());
    let lease = place.lease("worker").acquire_blocking().unwrap();
    place.revoke("worker");
    place.issue("worker", "alice", DAY, &new_key());
    place.try_reload().unwrap();
    wait_until("the session is resumed", || place.resumed() == 1.0);
    check(&lease);
}

#[test]
fn node_presents_its_renewed_certificate_without_the_end_of_a_connection() {
    let place = Place::new();
    let lease = place.lease("alice").acquire_blocking().unwrap();
    let presented = || {
        let mut presented = Vec::new();
        block_on(async {
            let client = place.raw("bob").await;
            let chain = client.connection.peer_identity().unwrap();
            let chain = chain.downcast::<Vec<CertificateDer<'static>>>().unwrap();
            presented.extend_from_slice(&chain[0]);
        });
        presented
    };
    let before = presented();
    DevelopmentCertificates::new(place.path()).host("127.0.0.1").replace().create().unwrap();
    assert!(presented() == before);
    place.try_reload().unwrap();
    assert!(presented() != before);
    check(&lease);
    assert_eq!(place.resumed(), 0.0);
}

#[test]
fn clients_of_a_removed_authority_lose_their_connections() {
    let (place, other) = (Place::new(), certificates());
    block_on(async {
        let alice = place.raw("alice").await;
        for name in ["ca.pem", "ca.crl", "alice.pem", "alice.key"] {
            fs::copy(other.path().join(name), place.path().join(name)).unwrap();
        }
        place.try_reload().unwrap();
        let reason = closed(&alice).await;
        assert!(reason.contains("no longer accepts the certificate"), "{reason}");
    });
}

#[test]
fn reload_with_a_bad_file_changes_nothing_and_names_the_file() {
    let place = Place::new();
    let lease = place.lease("alice").acquire_blocking().unwrap();
    let acquire = || place.lease("bob").acquire_blocking();
    let quotas = "[tenants.bob]\nmax_leases = 0\n";
    for (name, contents, mode) in [
        ("node.pem", Some("text"), 0o644),
        ("node.key", None, 0o644),
        ("ca.pem", Some(""), 0o644),
        ("ca.crl", Some("text"), 0o644),
        ("quotas.toml", Some("[tenants"), 0o644),
    ] {
        let path = place.path().join(name);
        let (earlier, permissions) =
            (fs::read(&path).unwrap(), path.metadata().unwrap().permissions());
        fs::write(place.path().join("quotas.toml"), quotas).unwrap();
        if let Some(contents) = contents {
            fs::write(&path, contents).unwrap();
        }
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let error = place.try_reload().unwrap_err();
        assert!(error.contains(path.to_str().unwrap()), "{name}: {error}");
        assert_eq!(error.contains("`chmod 600 "), name == "node.key", "{error}");
        // Clients use the files too.
        fs::write(&path, earlier).unwrap();
        fs::set_permissions(&path, permissions).unwrap();
        drop(acquire().unwrap());
    }
    fs::write(place.path().join("quotas.toml"), quotas).unwrap();
    place.try_reload().unwrap();
    let error = acquire().unwrap_err();
    assert_eq!(error.status(), Some(Status::TooLarge), "{error}");
    check(&lease);
    assert_eq!(place.resumed(), 0.0);
}

#[test]
fn token_is_for_the_key_that_it_was_issued_to_and_a_renewal_moves_the_lease() {
    let place = Place::new();
    place.issue("second", "alice", DAY, &new_key());
    let clients = (place.client("alice"), place.client("second"), place.client("bob"));
    let (alice, second, bob) = (&clients.0, &clients.1, &clients.2);
    let held = alice.allocate(&place.node.lease()).unwrap();
    // A stolen token of another tenant is of no use.
    for refused in [
        bob.free(held.id, held.token.clone()).unwrap_err(),
        bob.renew(held.id, held.token.clone(), 60).map(drop).unwrap_err(),
    ] {
        assert_eq!(refused.status(), Some(Status::Unauthorized), "{refused}");
        assert!(refused.to_string().contains("does not belong to tenant bob"), "{refused}");
    }
    let is_denied = |line: &&str| {
        let lease = format!("\"lease\":{},", held.id);
        ["\"denied\"", "\"bob\"", &lease].into_iter().all(|part| line.contains(part))
    };
    wait_until("the audit log has both", || {
        let audit = fs::read_to_string(place.path().join("audit")).unwrap();
        audit.lines().filter(is_denied).count() == 2
    });
    // Another key of the tenant renews first.
    let refused = second.free(held.id, held.token.clone()).unwrap_err();
    assert_eq!(refused.status(), Some(Status::Unauthorized), "{refused}");
    assert!(refused.to_string().contains("renew the lease with this certificate"), "{refused}");
    assert_eq!(second.free_own(held.id).unwrap_err().status(), Some(Status::NotFound));
    let (token, _) = second.renew(held.id, held.token.clone(), 60).unwrap();
    assert_eq!(alice.free_own(held.id).unwrap_err().status(), Some(Status::NotFound));
    let stolen = alice.free(held.id, token.clone()).unwrap_err();
    assert_eq!(stolen.status(), Some(Status::Unauthorized), "{stolen}");
    // A certificate that was renewed with the same key needs nothing.
    let key = new_key();
    place.issue("first", "alice", DAY, &key);
    let first = place.client("first");
    let (token, _) = first.renew(held.id, token, 60).unwrap();
    place.issue("renewed", "alice", DAY, &key);
    place.client("renewed").free(held.id, token).unwrap();
}

#[test]
fn lease_whose_end_is_announced_moves_to_another_key_without_a_renewal() {
    let place = Place::new();
    place.issue("second", "alice", DAY, &new_key());
    let (alice, second) = (place.client("alice"), place.client("second"));
    let held = alice.allocate(&place.node.lease().lease_secs(600)).unwrap();
    let revoke = ["revoke", &held.id.to_string(), "--notice-secs", "300"];
    assert!(place.operator(&revoke).status.success());
    let refused = alice.renew(held.id, held.token.clone(), 3600).unwrap_err();
    assert_eq!(refused.status(), Some(Status::Revoked), "{refused}");
    let (token, left) = second.renew(held.id, held.token, 3600).unwrap();
    assert!(left <= Duration::from_secs(600), "{left:?}");
    let refused = second.renew(held.id, token.clone(), 3600).unwrap_err();
    assert_eq!(refused.status(), Some(Status::Revoked), "{refused}");
    second.free(held.id, token).unwrap();
}

#[test]
fn node_refuses_a_key_that_others_can_read() {
    let folder = certificates();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::set_permissions(file("node.key"), Permissions::from_mode(0o640)).unwrap();
    let refused = Command::new(program())
        .args(["--listen", "127.0.0.1:0", "--device", "cpu", "--cert", &file("node.pem")])
        .args(["--key", &file("node.key"), "--client-ca", &file("ca.pem")])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(message.contains(&format!("run `chmod 600 {}`", file("node.key"))), "{message}");
}
