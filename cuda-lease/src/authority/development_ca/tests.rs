//! Tests of the files; the tests of `authority` use the certificates on connections.

use std::os::unix::fs::PermissionsExt;

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::*;

fn names(created: &CreatedCertificates) -> Vec<&str> {
    created.files.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect()
}

/// Creates the certificates of node and `alice` in a new directory.
fn installation() -> (tempfile::TempDir, CreatedCertificates) {
    let directory = tempfile::tempdir().unwrap();
    let certificates = DevelopmentCertificates::new(directory.path().join("certs"));
    let created = certificates.host("localhost").host("10.0.0.5").client("alice").create().unwrap();
    (directory, created)
}

fn with_certificate<T>(path: &Path, check: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
    let der = pem::certificates(path).unwrap().remove(0);
    let (rest, certificate) = X509Certificate::from_der(der.as_ref()).unwrap();
    assert!(rest.is_empty());
    check(&certificate)
}

#[test]
fn new_installation_has_all_files_and_private_keys() {
    let (_directory, created) = installation();
    let expected = ["ca.pem", "ca.key", "ca.crl", "node.pem", "node.key", "alice.pem", "alice.key"];
    assert_eq!(names(&created), expected);
    assert!(!created.authority_reused);
    for path in &created.files {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        match path.extension().unwrap().to_str().unwrap() {
            "key" => assert_eq!(mode, 0o600, "{path:?}"),
            _ => assert_eq!(mode & 0o133, 0, "{path:?}"),
        }
    }
}

#[test]
fn certificates_have_names_usages_and_validity() {
    let (directory, _) = installation();
    let file = |name: &str| directory.path().join("certs").join(name);
    with_certificate(&file("ca.pem"), |ca| {
        assert!(ca.is_ca());
        let usage = ca.key_usage().unwrap().unwrap().value;
        assert!(usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
        assert_eq!(ca.basic_constraints().unwrap().unwrap().value.path_len_constraint, Some(0));
    });
    with_certificate(&file("node.pem"), |node| {
        let extension = node.subject_alternative_name().unwrap().unwrap();
        let expected = [GeneralName::DNSName("localhost"), GeneralName::IPAddress(&[10, 0, 0, 5])];
        assert_eq!(extension.value.general_names, expected);
        let usage = node.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth && !usage.any);
        assert!(!node.is_ca());
    });
    with_certificate(&file("alice.pem"), |alice| {
        let usage = alice.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth && !usage.any);
        let usage = alice.key_usage().unwrap().unwrap().value;
        assert!(usage.digital_signature() && !usage.key_cert_sign());
        let days = (alice.validity().time_to_expiration().unwrap().whole_hours() + 1) / 24;
        assert_eq!(days, 365);
        assert!(alice.validity().is_valid() && !alice.is_ca());
    });
    let tenant = Tenant::from_certificate(&pem::certificates(&file("alice.pem")).unwrap()[0]);
    assert_eq!(tenant.unwrap().as_str(), "alice");
}

#[test]
fn existing_authority_is_used_for_more_clients() {
    let (directory, _) = installation();
    let certificates = DevelopmentCertificates::new(directory.path().join("certs"));
    let created =
        certificates.client("bob").client("carol").client("bob").days(30).create().unwrap();
    assert!(created.authority_reused);
    assert_eq!(names(&created), ["bob.pem", "bob.key", "carol.pem", "carol.key"]);
    let ca = directory.path().join("certs/ca.pem");
    with_certificate(&ca, |ca| {
        with_certificate(&created.files[0], |bob| assert_eq!(bob.issuer(), ca.subject()));
    });
}

#[test]
fn existing_files_are_not_overwritten() {
    let (directory, _) = installation();
    let certificates = DevelopmentCertificates::new(directory.path().join("certs"));
    let before = fs::read(directory.path().join("certs/alice.key")).unwrap();
    for again in
        [certificates.clone().client("alice").client("aaron"), certificates.host("localhost")]
    {
        let error = again.create().unwrap_err();
        assert!(matches!(error, DevelopmentCaError::Exists { .. }), "{error}");
    }
    assert_eq!(fs::read(directory.path().join("certs/alice.key")).unwrap(), before);
    assert!(!directory.path().join("certs/aaron.pem").exists());
    let mut created = CreatedCertificates { files: Vec::new(), authority_reused: true };
    let error = write_new(directory.path().join("certs/alice.key"), "", 0o600, &mut created);
    assert!(matches!(error, Err(DevelopmentCaError::Exists { .. })));
}

#[test]
fn incomplete_authority_is_refused() {
    for missing in ["ca.pem", "ca.key"] {
        let (directory, _) = installation();
        fs::remove_file(directory.path().join("certs").join(missing)).unwrap();
        let certificates = DevelopmentCertificates::new(directory.path().join("certs"));
        let error = certificates.client("bob").create().unwrap_err();
        assert!(matches!(error, DevelopmentCaError::IncompleteAuthority { .. }), "{error}");
        assert!(error.to_string().contains(missing), "{error}");
    }
}

#[test]
fn unusable_authority_is_refused() {
    let replacements = [
        ("node.key", "ca.key", "another certificate"),
        ("alice.pem", "ca.pem", "not the certificate"),
    ];
    for (from, to, reason) in replacements {
        let (directory, _) = installation();
        let file = |name: &str| directory.path().join("certs").join(name);
        fs::copy(file(from), file(to)).unwrap();
        let certificates = DevelopmentCertificates::new(directory.path().join("certs"));
        let error = certificates.client("bob").create().unwrap_err();
        assert!(matches!(error, DevelopmentCaError::Authority { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(!file("bob.pem").exists());
    }
}

#[test]
fn expired_or_ambiguous_authority_is_refused() {
    let (directory, _) = installation();
    let file = |name: &str| directory.path().join("certs").join(name);
    let certificates = DevelopmentCertificates::new(directory.path().join("certs")).client("bob");
    let refusal = || match certificates.create().unwrap_err() {
        DevelopmentCaError::Authority { reason, .. } => reason,
        error => panic!("{error}"),
    };

    let ca = fs::read_to_string(file("ca.pem")).unwrap();
    fs::write(file("ca.pem"), format!("{ca}{ca}")).unwrap();
    assert!(refusal().contains("more than one certificate"));

    let key = KeyPair::from_pem(&fs::read_to_string(file("ca.key")).unwrap()).unwrap();
    let mut params = with_common_name("expired");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    fs::write(file("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    assert!(refusal().contains("expired"));
}

#[test]
fn bad_names_are_refused_before_a_file_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let certificates = || DevelopmentCertificates::new(directory.path());
    for host in ["", "a b", "localhost:1", "[::1]", "*.example"] {
        let error = certificates().host(host).create().unwrap_err();
        assert!(matches!(error, DevelopmentCaError::Host { .. }), "{error}");
    }
    for name in ["ca", "node"] {
        let error = certificates().client(name).create().unwrap_err();
        assert!(matches!(error, DevelopmentCaError::ReservedName { .. }), "{error}");
    }
    for name in ["", "..", "../alice", "a/b"] {
        let error = certificates().host("localhost").client(name).create().unwrap_err();
        assert!(matches!(error, DevelopmentCaError::Client(_)), "{error}");
    }
    for days in [0, DevelopmentCertificates::MAX_DAYS + 1, u32::MAX] {
        let error = certificates().days(days).create().unwrap_err();
        assert!(matches!(error, DevelopmentCaError::Days { .. }), "{error}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn directory_that_cannot_be_created_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = DevelopmentCertificates::new(&file).create().unwrap_err();
    assert!(matches!(error, DevelopmentCaError::Write { .. }), "{error}");
    assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
}

#[test]
fn replacement_renews_the_named_files_and_keeps_the_authority() {
    let (directory, _) = installation();
    let folder = directory.path().join("certs");
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let names = ["ca.pem", "ca.key", "node.pem", "node.key", "alice.pem", "alice.key"];
    let before = names.map(read);
    let certificates = DevelopmentCertificates::new(&folder).client("alice").replace();
    let created = certificates.create().unwrap();
    assert_eq!(self::names(&created), ["alice.pem", "alice.key"]);
    assert!(created.authority_reused);
    let is_new: Vec<bool> =
        names.iter().zip(&before).map(|(name, old)| read(name) != *old).collect();
    assert_eq!(is_new, [false, false, false, false, true, true]);
    let mode = folder.join("alice.key").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// The serial numbers on the list of a directory.
fn revoked(folder: &Path) -> Vec<Vec<u8>> {
    let lists = pem::revocation_lists(&folder.join("ca.crl")).unwrap();
    let [list] = &*lists else { panic!("{} lists", lists.len()) };
    let (_, list) = CertificateRevocationList::from_der(list).unwrap();
    list.iter_revoked_certificates().map(|entry| entry.raw_serial().to_vec()).collect()
}

#[test]
fn revoked_certificates_are_added_to_the_list() {
    let (directory, _) = installation();
    let folder = directory.path().join("certs");
    let certificates = DevelopmentCertificates::new(&folder);
    certificates.clone().client("bob").create().unwrap();
    assert!(revoked(&folder).is_empty());
    let serial = |name: &str| {
        with_certificate(&folder.join(name), |certificate| certificate.raw_serial().to_vec())
    };
    let (alice, bob) = (serial("alice.pem"), serial("bob.pem"));
    let revoke = |name: &str| certificates.clone().client(name).revoke();
    assert_eq!(revoke("alice").unwrap(), folder.join("ca.crl"));
    let error = revoke("nobody").unwrap_err().to_string();
    assert!(error.contains("nobody.pem cannot be revoked: there is no such file"), "{error}");
    revoke("alice").unwrap();
    assert_eq!(revoked(&folder), std::slice::from_ref(&alice));
    revoke("bob").unwrap();
    assert_eq!(revoked(&folder), [alice, bob]);
    let list = pem::revocation_lists(&folder.join("ca.crl")).unwrap();
    let (_, list) = CertificateRevocationList::from_der(&list[0]).unwrap();
    assert_eq!(list.crl_number().unwrap(), &4u32.into());
    assert!(!folder.join("ca.crl.new").exists());
}

#[test]
fn certificate_that_cannot_be_revoked_is_named_and_the_list_stays() {
    let (directory, _) = installation();
    let folder = directory.path().join("certs");
    let certificates = DevelopmentCertificates::new(&folder);
    let list = fs::read(folder.join("ca.crl")).unwrap();
    let error = certificates.clone().client("nobody").revoke().unwrap_err();
    assert!(error.to_string().contains("nobody.pem"), "{error}");
    let (other, _) = installation();
    fs::copy(other.path().join("certs/alice.pem"), folder.join("carol.pem")).unwrap();
    let error = certificates.clone().client("carol").revoke().unwrap_err();
    assert!(matches!(error, DevelopmentCaError::NotRevocable { .. }), "{error}");
    assert!(fs::read(folder.join("ca.crl")).unwrap() == list);
    fs::copy(other.path().join("certs/ca.crl"), folder.join("ca.crl")).unwrap();
    let error = certificates.clone().client("alice").revoke().unwrap_err();
    assert!(error.to_string().contains("another authority issued the list"), "{error}");
    let empty = DevelopmentCertificates::new(directory.path().join("empty"));
    let error = empty.client("alice").revoke().unwrap_err();
    assert!(matches!(error, DevelopmentCaError::NoAuthority { .. }), "{error}");
}
