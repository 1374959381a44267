//! `cuda-lease certs`, and connections with its certificates.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

use cuda_lease::authority::{DevelopmentCertificates, ServerTls};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};

use crate::support::Place;

#[test]
fn certs_writes_private_keys_and_overwrites_nothing_by_itself() {
    let place = Place::new();
    let written = place.run_without_node("certs --dir c").done();
    let names = ["ca.pem", "ca.key", "ca.crl", "node.pem", "node.key", "client.pem", "client.key"];
    assert_eq!(written, names.map(|name| format!("c/{name}\n")).concat());
    for name in names.into_iter().filter(|name| name.ends_with(".key")) {
        let mode = place.path(&format!("c/{name}")).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let (node, ca) = (place.load("c/node.key"), place.load("c/ca.key"));
    place.run_without_node("certs --dir c").failed(2, "replace it with --force");
    assert!(place.load("c/node.key") == node);

    // Another client needs no other certificate of the node.
    assert_eq!(
        place.run_without_node("certs --dir c --client bob").done(),
        "c/bob.pem\nc/bob.key\n"
    );
    place.run_without_node("certs --dir c --force").done();
    assert!(place.load("c/node.key") != node && place.load("c/ca.key") == ca);
    let mode = place.path("c/node.key").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    place.run_without_node("certs --dir c --client ../x").failed(2, "");
    place.run_without_node("certs --dir c --days 0").failed(2, "--days");
    place
        .run_without_node("certs --dir d --host a/b")
        .failed(2, "neither a DNS name nor an IP address");
}

#[test]
fn certs_keeps_the_certificate_of_the_node_for_another_client() {
    let place = Place::new();
    let certs = |line: &str| place.run_without_node(&format!("certs --dir c {line}"));
    certs("--host gpu-node --host 10.0.0.5 --client alice").done();
    let files = ["c/node.pem", "c/node.key", "c/alice.pem"].map(|name| place.load(name));
    let both = "--host GPU-node --client alice --client bob";
    assert_eq!(certs(both).done(), "c/bob.pem\nc/bob.key\n");
    certs(both).failed(2, "c/node.pem exists");
    // Another host is in another certificate, with another key.
    let other = certs("--host 10.0.0.6 --client carol");
    assert!(other.stderr.contains("it does not state the host 10.0.0.6"), "{}", other.stderr);
    assert!(other.stderr.contains("`cuda-lease certs --dir c --client carol`"), "{}", other.stderr);
    let forced = "`cuda-lease certs --dir c --host 10.0.0.6 --client carol --force`";
    other.failed(2, forced);
    assert!(!place.path("c/carol.pem").exists());
    assert!(files == ["c/node.pem", "c/node.key", "c/alice.pem"].map(|name| place.load(name)));
    // Nor is a certificate of another authority kept.
    place.run_without_node("certs --dir d --host gpu-node --client alice").done();
    for name in ["ca.pem", "ca.key"] {
        fs::copy(place.path(&format!("d/{name}")), place.path(&format!("c/{name}"))).unwrap();
    }
    certs("--host gpu-node --client carol").failed(2, "another authority issued it");
}

#[test]
fn node_with_certificates_serves_clients_of_its_authority() {
    let place = secured();
    let alice = "--ca ca.pem --cert alice.pem --key alice.key";
    assert!(place.run(&format!("inventory {alice}")).done().contains("\ncpu "));
    let submitted = place.iota(&format!("--output-bytes 4 --format f32 {alice}"));
    assert_eq!(submitted.done(), "1.0\n");
    // Without a certificate the node refuses, also with the right authority.
    place
        .run("inventory --ca ca.pem")
        .failed(4, "requires a client certificate; set the client's certificate and its key with --ca, --cert and --key");
    let other = place.run_without_node("certs --dir other").done();
    assert!(other.contains("other/ca.pem"));
    place.run("inventory --ca other/ca.pem").failed(4, "the options are --ca and --server-name");
    // A lease of alice is not in the listing of bob, and his certificate does not give access to it.
    place.run_without_node("certs --dir . --client bob").done();
    let bob = "--ca ca.pem --cert bob.pem --key bob.key";
    place.run(&format!("alloc --min-vram 1MiB --out lease.json {alice}")).done();
    let leases =
        |who: &str| place.run(&format!("top --json {who}")).done_with_json()["leases"].clone();
    assert_eq!(leases(alice).as_array().unwrap().len(), 1);
    assert_eq!(leases(bob).as_array().unwrap().len(), 0);
    place.run(&format!("free --lease lease.json {bob}")).failed(4, "does not belong to tenant bob");
    // A lease whose token is lost is freed by its number.
    let lost = place.run(&format!("alloc --json --min-vram 1MiB {alice}")).done_with_json();
    let free = |who: &str| place.run(&format!("free --id {} {who}", lost["lease"]));
    free(bob).failed(4, "tenant bob has no lease");
    assert_eq!(free(alice).done(), format!("lease {} is freed\n", lost["lease"]));
    free(alice).failed(4, "tenant alice has no lease");
    // The file of the lease has the paths of the certificates.
    std::fs::create_dir(place.path("elsewhere")).unwrap();
    std::fs::rename(place.path("lease.json"), place.path("elsewhere/lease.json")).unwrap();
    let line = format!("renew --lease elsewhere/lease.json --node {}", place.address());
    place.run_without_node(&line).done();
    let iota = "submit --ptx K/iota.ptx --kernel iota --arg u32=1 --region-bytes 4";
    place.run_without_node(&format!("{iota} --lease elsewhere/lease.json")).done();
    place.run_without_node("free --lease elsewhere/lease.json").done();
}

/// A node with certificates in the folder, and the client `alice`.
fn secured() -> Place {
    Place::with(|options, folder| {
        let certificates = DevelopmentCertificates::new(folder);
        certificates.host("127.0.0.1").client("alice").create().unwrap();
        let file = |name: &str| folder.join(name);
        options.tls = ServerTls::mutual(file("node.pem"), file("node.key"), file("ca.pem"));
    })
}

/// Issues a certificate of the authority in the folder for this common name, valid in these years.
fn issue(place: &Place, file: &str, common_name: &str, [from, until]: [i32; 2]) {
    let read = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    let ca_key = KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&read("ca.pem"), ca_key).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().unwrap();
    place.save(&format!("{file}.pem"), params.signed_by(&key, &issuer).unwrap().pem());
    let (path, text) = (format!("{file}.key"), key.serialize_pem());
    place.save(&path, text);
    fs::set_permissions(place.path(&path), Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn refused_certificate_has_a_reason() {
    let place = secured();
    issue(&place, "early", "early", [2900, 2901]);
    issue(&place, "late", "late", [2020, 2021]);
    issue(&place, "unnamed", "not a tenant", [2020, 2900]);
    let inventory = |name: &str| {
        place.run(&format!("inventory --ca ca.pem --cert {name}.pem --key {name}.key"))
    };
    inventory("early").failed(4, "client is not yet valid, by the clock of the node");
    inventory("late").failed(4, "client has expired, by the clock of the node");
    inventory("node").failed(4, "get one with the extended key usage clientAuth");
    inventory("unnamed")
        .failed(4, "names no valid tenant: tenant name \"not a tenant\" is refused");
}

#[test]
fn revoked_client_is_refused_by_a_node_that_reads_the_list() {
    let place = Place::with(|options, folder| {
        let certificates = DevelopmentCertificates::new(folder);
        certificates.host("127.0.0.1").client("alice").client("bob").create().unwrap();
        let revoked = DevelopmentCertificates::new(folder).client("alice").revoke().unwrap();
        let file = |name: &str| folder.join(name);
        let tls = ServerTls::mutual(file("node.pem"), file("node.key"), file("ca.pem"));
        options.tls = tls.revoked(revoked);
    });
    let inventory = |name: &str| {
        place.run(&format!("inventory --ca ca.pem --cert {name}.pem --key {name}.key"))
    };
    inventory("alice").failed(4, "the certificate of this client was revoked");
    inventory("bob").done();
    let certs = |line: &str| place.run_without_node(&format!("certs --dir . {line}"));
    assert_eq!(certs("--revoke bob").done(), "./ca.crl\n");
    certs("--revoke nobody").failed(2, "nobody.pem");
    certs("--revoke bob --force").failed(2, "--force");
    certs("--revoke ../bob").failed(2, "tenant name");
    place.run_without_node("certs --dir new --revoke bob").failed(2, "new/ca.pem does not exist");
}

#[test]
fn key_that_others_can_read_is_refused() {
    let place = secured();
    fs::set_permissions(place.path("alice.key"), Permissions::from_mode(0o644)).unwrap();
    let inventory = place.run("inventory --ca ca.pem --cert alice.pem --key alice.key");
    inventory.failed(2, "run `chmod 600 alice.key`");
}
