//! `cuda-lease certs`, and connections with its certificates.

use std::os::unix::fs::PermissionsExt;

use cuda_lease::authority::{DevelopmentCertificates, ServerTls};

use crate::support::Place;

#[test]
fn certs_writes_private_keys_and_overwrites_nothing_by_itself() {
    let place = Place::new();
    let written = place.run("certs --dir c").done();
    let names = ["ca.pem", "ca.key", "node.pem", "node.key", "client.pem", "client.key"];
    assert_eq!(written, names.map(|name| format!("c/{name}\n")).concat());
    for name in names.into_iter().filter(|it| it.ends_with(".key")) {
        let mode = place.path(&format!("c/{name}")).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let (node, ca) = (place.load("c/node.key"), place.load("c/ca.key"));
    place.run("certs --dir c").failed(2, "replace it with --force");
    assert!(place.load("c/node.key") == node);

    // Another client needs no other certificate of the node.
    assert_eq!(place.run("certs --dir c --client bob").done(), "c/bob.pem\nc/bob.key\n");
    place.run("certs --dir c --force").done();
    assert!(place.load("c/node.key") != node && place.load("c/ca.key") == ca);
    let mode = place.path("c/node.key").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    place.run("certs --dir c --client ../x").failed(2, "");
    place.run("certs --dir d --host a/b").failed(2, "neither a DNS name nor an IP address");
}

#[test]
fn node_with_certificates_serves_clients_of_its_authority() {
    let place = Place::with(|options, folder| {
        let certificates = DevelopmentCertificates::new(folder);
        certificates.host("127.0.0.1").client("alice").create().unwrap();
        let file = |name: &str| folder.join(name);
        options.tls = ServerTls::mutual(file("node.pem"), file("node.key"), file("ca.pem"));
    });
    let alice = "--ca ca.pem --cert alice.pem --key alice.key";
    assert!(place.run(&format!("inventory {alice}")).done().contains("\ncpu "));
    let submitted = place.iota(&format!("--output-bytes 4 --format f32 {alice}"));
    assert_eq!(submitted.done(), "1.0\n");
    // Without a certificate the node refuses, also with the right authority.
    place.run("inventory --ca ca.pem").failed(4, "requires a client certificate");
    // A lease of alice is not in the listing of bob, and his certificate does not give access to it.
    place.run("certs --dir . --client bob").done();
    let bob = "--ca ca.pem --cert bob.pem --key bob.key";
    place.run(&format!("alloc --min-vram 1MiB --out lease.json {alice}")).done();
    let leases =
        |who: &str| place.run(&format!("top --json {who}")).done_with_json()["leases"].clone();
    assert_eq!(leases(alice).as_array().unwrap().len(), 1);
    assert_eq!(leases(bob).as_array().unwrap().len(), 0);
    place.run(&format!("free --lease lease.json {bob}")).failed(4, "another certificate");
    place.run(&format!("free --lease lease.json {alice}")).done();
}
