//! Tenants with certificates, their limits, and the operator.

use std::{fs, path::Path, process::Command, sync::mpsc, thread, time::Duration};

use cuda_core::{Error, protocol::Status};
use cuda_lease::{
    Job, LeaseBuilder, NodeClient,
    authority::{ClientTls, DevelopmentCertificates},
    wire::{Allocate, Granted, PutBlob},
};
use quinn::TransportConfig;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{
    harness::{LONG, Node, Signal, check, program, wait_until},
    raw::{RawClient, Stream, request},
};

/// A folder with an authority, a node for 127.0.0.1, and the clients `alice` and `bob`.
pub fn certificates() -> TempDir {
    certificates_of(&["alice", "bob"])
}

/// A folder with an authority, a node for 127.0.0.1, and these clients.
fn certificates_of(clients: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let certificates = DevelopmentCertificates::new(folder.path()).host("127.0.0.1");
    clients.iter().fold(certificates, |of, client| of.client(*client)).create().unwrap();
    folder
}

/// A node that serves clients with certificates of `folder` only.
pub fn secured(folder: &Path, arguments: &[&str]) -> Node {
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (cert, key, ca) = (file("node.pem"), file("node.key"), file("ca.pem"));
    let own = ["--cert", &cert, "--key", &key, "--client-ca", &ca];
    Node::start_with(&[&own[..], arguments].concat())
}

fn anonymous(folder: &Path) -> ClientTls {
    ClientTls::with_ca(folder.join("ca.pem"))
}

pub fn client(folder: &Path, name: &str) -> ClientTls {
    let file = |end: &str| folder.join(format!("{name}.{end}"));
    anonymous(folder).client_certificate(file("pem"), file("key"))
}

fn lease(node: &Node, tls: ClientTls) -> LeaseBuilder {
    node.lease().tls(tls)
}

#[test]
fn client_with_a_certificate_has_a_lease() {
    let folder = certificates();
    let node = secured(folder.path(), &[]);
    check(&lease(&node, client(folder.path(), "alice")).acquire_blocking().unwrap());
}

#[test]
fn client_without_a_certificate_gets_an_error_that_names_the_option() {
    let folder = certificates();
    let node = secured(folder.path(), &[]);
    let error = lease(&node, anonymous(folder.path())).acquire_blocking().unwrap_err();
    assert_eq!(error.status(), Some(Status::Unauthorized), "{error}");
    assert!(error.to_string().contains("requires a client certificate"), "{error}");
}

#[test]
fn client_and_node_of_different_authorities_refuse_each_other() {
    let (folder, other) = (certificates(), certificates());
    let node = secured(folder.path(), &[]);
    let file = |name: &str| other.path().join(name);
    let stranger =
        anonymous(folder.path()).client_certificate(file("alice.pem"), file("alice.key"));
    let error = lease(&node, stranger).acquire_blocking().unwrap_err();
    assert_eq!(error.status(), Some(Status::Unauthorized), "{error}");
    assert!(error.to_string().contains("certificate of this client"), "{error}");
    let error = lease(&node, client(other.path(), "alice")).acquire_blocking().unwrap_err();
    assert_eq!(error.status(), Some(Status::Unauthorized), "{error}");
    assert!(error.to_string().contains("certificate of the node is not trusted"), "{error}");
}

#[test]
fn token_of_another_client_is_refused() {
    let folder = certificates();
    let node = secured(folder.path(), &[]);
    let connect =
        |name: &str| NodeClient::connect(&node.address, client(folder.path(), name)).unwrap();
    let (alice, bob) = (connect("alice"), connect("bob"));
    let held = alice.allocate(&node.lease()).unwrap();
    let theft = bob.free(held.id, held.token.clone()).unwrap_err();
    assert_eq!(theft.status(), Some(Status::Unauthorized), "{theft}");
    let theft = bob.renew(held.id, held.token.clone(), 60).unwrap_err();
    assert_eq!(theft.status(), Some(Status::Unauthorized), "{theft}");
    let own = bob.allocate(&node.lease()).unwrap();
    let foreign = bob.free(held.id, own.token).unwrap_err();
    assert_eq!(foreign.status(), Some(Status::Unauthorized), "{foreign}");
    alice.renew(held.id, held.token.clone(), 60).unwrap();
}

#[test]
fn tenant_frees_its_own_lease_without_the_token() {
    let folder = certificates();
    let node = secured(folder.path(), &[]);
    let connect = |tls| NodeClient::connect(&node.address, tls).unwrap();
    let (alice, bob) =
        (connect(client(folder.path(), "alice")), connect(client(folder.path(), "bob")));
    // Another certificate of the same tenant.
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    for name in ["ca.pem", "ca.key"] {
        fs::copy(folder.path().join(name), other.join(name)).unwrap();
    }
    DevelopmentCertificates::new(&other).client("alice").create().unwrap();
    let second = connect(client(&other, "alice"));
    let kept = alice.allocate(&node.lease()).unwrap();
    for stranger in [&bob, &second] {
        let error = stranger.free_own(kept.id).unwrap_err();
        assert_eq!(error.status(), Some(Status::NotFound), "{error}");
    }
    alice.free_own(kept.id).unwrap();
    let unknown = alice.free_own(999).unwrap_err();
    assert_eq!(unknown.status(), Some(Status::NotFound), "{unknown}");
    // A lease with a connection too. It has ended then.
    let lease = lease(&node, client(folder.path(), "alice")).acquire_blocking().unwrap();
    alice.free_own(lease.id()).unwrap();
    wait_until("the lease has ended", || alice.leases().unwrap().is_empty());
}

#[test]
fn quotas_of_tenants_are_read_again_on_a_signal() {
    let folder = certificates();
    let quotas = folder.path().join("quotas.toml");
    fs::write(&quotas, "[tenants.bob]\nmax_leases = 1\n").unwrap();
    let node = secured(folder.path(), &["--quotas", quotas.to_str().unwrap()]);
    let acquire = |name: &str| lease(&node, client(folder.path(), name)).acquire_blocking();
    let _alice = [acquire("alice").unwrap(), acquire("alice").unwrap()];
    let _first = acquire("bob").unwrap();
    let refused = acquire("bob").unwrap_err();
    assert_eq!(refused.status(), Some(Status::QuotaExceeded), "{refused}");
    fs::write(&quotas, "[tenants.bob]\nmax_leases = 2\n").unwrap();
    assert!(
        Command::new("kill").args(["-HUP", &node.pid().to_string()]).status().unwrap().success()
    );
    wait_until("the new quota is in force", || acquire("bob").is_ok());
}

#[test]
fn rate_of_submits_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let quotas = folder.path().join("quotas.toml");
    let iota = include_str!("../../../kernels/iota.ptx");
    // A submit whose image the node lacks is repeated with the image, and counts once.
    for limit in [0, 1] {
        fs::write(&quotas, format!("[defaults]\nsubmits_per_second = {limit}\n")).unwrap();
        let node = Node::start(&["--quotas", quotas.to_str().unwrap()]);
        let lease = node.lease().acquire_blocking().unwrap();
        let submit = lease.submit("iota", iota).grid(1).block(32).arg(&32u32);
        let submitted = submit.max_output(128).launch_blocking();
        match submitted {
            Ok(_) => assert_eq!(limit, 1),
            Err(refused) => {
                assert_eq!((limit, refused.status()), (0, Some(Status::TooLarge)), "{refused}");
            }
        }
        check(&lease);
    }
}

#[test]
fn operator_revokes_a_lease_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("operator");
    let socket = socket.to_str().unwrap();
    let node = Node::start(&["--operator-socket", socket, "--grace-ms", "50"]);
    let (lease, neighbor) =
        (node.lease().acquire_blocking().unwrap(), node.lease().acquire_blocking().unwrap());
    let operator = |arguments: &[&str]| {
        Command::new(program()).args(arguments).args(["--socket", socket]).output().unwrap()
    };
    let missing = operator(&["revoke", "99"]);
    assert!(!missing.status.success());
    let message = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(message.contains("lease 99"), "{message}");
    let id = lease.id().to_string();
    assert!(operator(&["revoke", &id, "--reason", "maintenance"]).status.success());
    let mut error = None;
    wait_until("the lease has ended", || {
        error = lease.device().new_stream().map(drop).err();
        error.is_some()
    });
    let error = error.unwrap();
    assert_eq!(error.status(), Some(Status::Revoked), "{error}");
    assert!(error.to_string().contains("maintenance"), "{error}");
    check(&neighbor);
    let unknown = operator(&["unfence", "cuda:7"]);
    let message = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(message.contains("the node has"), "{message}");
}

#[test]
fn node_that_verifies_no_clients_listens_on_loopback_only() {
    let refused = Command::new(program())
        .args(["--listen", "0.0.0.0:0", "--device", "cpu", "--insecure"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("loopback"), "{message}");
    // No client sends its work to a node that it cannot verify.
    let error = LeaseBuilder::new("192.0.2.1:5701").acquire_blocking().unwrap_err();
    assert!(matches!(error, Error::Misuse(_)), "{error}");
}

/// A client with a certificate may free a lease before it has the token.
#[test]
fn worker_that_starts_ends_with_its_lease() {
    let folder = certificates();
    let node = secured(folder.path(), &["--spares", "0"]);
    wait_until("the first worker has ended", || node.workers().is_empty());
    let connect = || NodeClient::connect(&node.address, client(folder.path(), "alice")).unwrap();
    let (first, second) = (connect(), connect());
    std::thread::scope(|scope| {
        scope.spawn(|| first.allocate(&node.lease()));
        // The supervisor waits for the start of its program.
        let runs = |worker: &u32| {
            let arguments = fs::read_to_string(format!("/proc/{worker}/cmdline"));
            arguments.is_ok_and(|arguments| arguments.contains("--sandbox="))
        };
        let worker = loop {
            if let Some(worker) = node.workers().into_iter().find(runs) {
                break worker;
            }
        };
        let pid = rustix::process::Pid::from_raw(worker as i32).unwrap();
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        second.free_own(second.leases().unwrap()[0].lease).unwrap();
        wait_until("the worker has ended", || node.workers().is_empty());
    });
}

/// Sends two uploads slowly: a part of their bytes each second.
async fn upload_slowly(address: &str, tls: ClientTls, begun: mpsc::Sender<()>) {
    let client = RawClient::connect_as(address, tls, TransportConfig::default()).await.unwrap();
    let mut client = client.greet(0).await;
    client.send(&Allocate { lease_secs: 600, ..request() }).await;
    let Granted { lease, token, .. } = client.granted().await;
    let mut uploads = JoinSet::new();
    for number in 0..2 {
        let mut put = Stream::open(&client.connection).await;
        let blob = PutBlob { lease, token: token.clone(), hash: [number; 32], bytes: 64 << 20 };
        put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
        put.bytes(&[0; 15 << 20]).await;
        begun.send(()).unwrap();
        uploads.spawn(async move {
            while put.send.write_all(&[0; 300 << 10]).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }
    uploads.join_all().await;
    client.connection.closed().await;
}

/// The slow uploads of four tenants would keep all memory for modules that arrive for four minutes.
#[test]
fn large_module_waits_seconds_for_slow_uploads_of_other_tenants() {
    const SLOW: [&str; 4] = ["carol", "dave", "erin", "frank"];
    let folder = certificates_of(&[&SLOW[..], &["bob"]].concat());
    let node = secured(folder.path(), &["--spares", "0"]);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let (sender, begun) = mpsc::channel();
    for name in SLOW {
        let (address, tls) = (node.address.clone(), client(folder.path(), name));
        let sender = sender.clone();
        runtime.spawn(async move { upload_slowly(&address, tls, sender).await });
    }
    (0..2 * SLOW.len()).for_each(|_| begun.recv_timeout(LONG).unwrap());
    let lease = lease(&node, client(folder.path(), "bob")).acquire_blocking().unwrap();
    let (sender, arrived) = mpsc::channel();
    thread::spawn(move || {
        // No code: a driver takes a minute to compile a long text of spaces.
        let submit = lease.submit_job(Job::from_cubin("kernel", vec![0; 16 << 20]));
        sender.send(submit.launch_blocking().map(drop))
    });
    let arrived = arrived.recv_timeout(LONG).expect("the module waits for the uploads of others");
    assert_eq!(arrived.unwrap_err().status(), Some(Status::LoadFailed));
}
