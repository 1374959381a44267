//! The identity of a client: the tenant that its certificate names, and the fingerprint of the certificate's key.

use std::fmt;

use data_encoding::HEXLOWER;
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;
use thiserror::Error;

/// The length limit of a tenant's name in characters.
const MAX_TENANT: usize = 64;

/// The blake3 hash of a client's public key: the 32-byte hash of the DER bytes of the `SubjectPublicKeyInfo` in the
/// end-entity certificate.
///
/// A renewed certificate has the same fingerprint if its key stays the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of every client of a node that verifies no client certificates: 32 zero bytes.
    pub const UNAUTHENTICATED: Self = Self([0; 32]);

    /// Returns the fingerprint of the key of a certificate.
    ///
    /// # Errors
    ///
    /// The error of the TLS library if the bytes are not an X.509 certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        Ok(Self(*blake3::hash(&key).as_bytes()))
    }

    /// Returns the fingerprint with these bytes, for example from a configuration file.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// The name of a tenant: the owner of leases, quotas and caches on a node.
///
/// A name has 1 to 64 characters of `A-Z a-z 0-9 . _ -` and is neither `.` nor `..`, so it can name a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "server", derive(serde::Deserialize), serde(try_from = "String"))]
pub struct Tenant(String);

impl TryFrom<String> for Tenant {
    type Error = TenantError;

    fn try_from(name: String) -> Result<Self, TenantError> {
        Self::new(&name)
    }
}

impl Tenant {
    /// Checks a name and makes it a tenant.
    ///
    /// # Errors
    ///
    /// [`TenantError`] if the name is empty, is longer than 64 characters, has another character than
    /// `A-Z a-z 0-9 . _ -`, or is `.` or `..`.
    pub fn new(name: &str) -> Result<Self, TenantError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let valid = (1..=MAX_TENANT).contains(&name.len())
            && name.bytes().all(allowed)
            && !matches!(name, "." | "..");
        if valid { Ok(Self(name.to_owned())) } else { Err(TenantError::new(name)) }
    }

    /// Returns the tenant of every client of a node that verifies no client certificates: `local`.
    pub fn local() -> Self {
        Self("local".to_owned())
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name that is not a tenant's name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[error(
    "tenant name {name:?} is refused: a tenant has 1 to {MAX_TENANT} characters of A-Z a-z 0-9 . _ - and is neither \
     \".\" nor \"..\"; choose another name, for example \"alice\""
)]
pub struct TenantError {
    /// The name, cut after 64 characters.
    pub name: String,
}

impl TenantError {
    fn new(name: &str) -> Self {
        Self { name: name.chars().take(MAX_TENANT).collect() }
    }
}

#[cfg(feature = "server")]
pub use certificate::{ClientIdentity, IdentityError};

#[cfg(feature = "server")]
mod certificate {
    use std::time::{Duration, SystemTime};

    use thiserror::Error;
    use x509_parser::error::X509Error;
    use x509_parser::prelude::X509Certificate;

    use super::{CertificateDer, Fingerprint, Tenant, TenantError};

    /// A client that a node does not identify, or no longer accepts.
    #[derive(Debug, Error)]
    #[non_exhaustive]
    pub enum IdentityError {
        /// The client presented no certificate.
        #[error(
            "the client presented no certificate; start it with a client certificate and its key"
        )]
        NoCertificate,
        /// The bytes of the certificate are not an X.509 certificate.
        #[error("the client's certificate cannot be read as X.509: {0}; issue a new certificate")]
        Malformed(#[source] X509Error),
        /// The certificate does not state that it is for clients.
        #[error(
            "the client's certificate does not state the extended key usage clientAuth; issue one that does"
        )]
        NotForClients,
        /// The subject has several common names, so the tenant is ambiguous.
        #[error(
            "the client's certificate has {count} common names; issue one with the tenant's name only"
        )]
        AmbiguousName {
            /// The number of common names in the subject.
            count: usize,
        },
        /// The certificate has no common name.
        #[error(
            "the client's certificate names no tenant: it has no common name; issue one whose common name is the tenant"
        )]
        NoName,
        /// The certificate's name is not a tenant's name.
        #[error("the client's certificate names no valid tenant: {0}")]
        Tenant(#[from] TenantError),
        /// The certificate has expired since the client connected.
        #[error("the certificate of this client has expired; connect again with a renewed one")]
        Expired,
        /// The certificate was revoked since the client connected.
        #[error("the certificate of this client was revoked; connect again with another one")]
        Revoked,
        /// The certificate is no longer valid for another reason: its authority was removed, for example.
        #[error(
            "the node no longer accepts the certificate of this client: {0}; connect again with another one"
        )]
        Invalid(#[source] rustls::Error),
    }

    /// A client, as its certificate identifies it.
    #[derive(Clone, Debug)]
    pub struct ClientIdentity {
        /// The tenant.
        pub tenant: Tenant,
        /// The key of the certificate.
        pub key: Fingerprint,
        /// The certificates that the client presented, its own first. Empty on a node that verifies no clients.
        pub(in crate::authority) chain: Vec<CertificateDer<'static>>,
    }

    impl ClientIdentity {
        /// The identity of every client of a node that verifies no client certificates.
        pub(in crate::authority) fn local() -> Self {
            let (tenant, key) = (Tenant::local(), Fingerprint::UNAUTHENTICATED);
            Self { tenant, key, chain: Vec::new() }
        }

        /// Reads the certificates of a client, its own first. They must already be verified.
        ///
        /// # Errors
        ///
        /// [`IdentityError`] if there is none, or the client's own is not for clients or names no valid tenant.
        pub(in crate::authority) fn of(
            chain: Vec<CertificateDer<'static>>,
        ) -> Result<Self, IdentityError> {
            let own = chain.first().ok_or(IdentityError::NoCertificate)?;
            check_usage(&parse(own)?)?;
            let tenant = Tenant::from_certificate(own)?;
            let key = Fingerprint::of(own).map_err(IdentityError::Invalid)?;
            Ok(Self { tenant, key, chain })
        }

        /// Returns the time at which the certificate of the client expires, or `None` if the client has no certificate.
        pub fn expires(&self) -> Option<SystemTime> {
            self.chain.first().and_then(end)
        }

        /// Returns the first time after `now` at which one of the certificates expires.
        pub fn next_end(&self, now: SystemTime) -> Option<SystemTime> {
            self.chain.iter().filter_map(end).filter(|end| *end > now).min()
        }
    }

    impl Tenant {
        /// Returns the tenant that a client certificate names: the common name of its subject.
        ///
        /// The certificate must already be verified; this function checks no signature and no dates.
        ///
        /// # Errors
        ///
        /// [`IdentityError`] if the bytes are not a certificate, or the certificate has not exactly one common name
        /// that is a tenant's name.
        pub fn from_certificate(certificate: &CertificateDer<'_>) -> Result<Self, IdentityError> {
            let certificate = parse(certificate)?;
            let names = certificate.subject().iter_common_name().collect::<Vec<_>>();
            match names.as_slice() {
                [] => Err(IdentityError::NoName),
                [name] => Ok(Self::new(name.as_str().map_err(IdentityError::Malformed)?)?),
                names => Err(IdentityError::AmbiguousName { count: names.len() }),
            }
        }
    }

    fn parse<'a>(
        certificate: &'a CertificateDer<'_>,
    ) -> Result<X509Certificate<'a>, IdentityError> {
        let parsed = x509_parser::parse_x509_certificate(certificate.as_ref());
        let (_, parsed) = parsed.map_err(|error| IdentityError::Malformed(x509_error(error)))?;
        Ok(parsed)
    }

    /// The handshake refuses certificates that state other usages only, and accepts those that state none.
    fn check_usage(certificate: &X509Certificate<'_>) -> Result<(), IdentityError> {
        let usage = certificate.extended_key_usage().map_err(IdentityError::Malformed)?;
        let is_for_clients = usage.is_some_and(|usage| usage.value.client_auth);
        if is_for_clients { Ok(()) } else { Err(IdentityError::NotForClients) }
    }

    /// The first second at which a certificate is no longer valid. It is valid in the second that it states.
    fn end(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
        let seconds = parse(certificate).ok()?.validity().not_after.timestamp().checked_add(1)?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.try_into().ok()?))
    }

    fn x509_error(error: x509_parser::nom::Err<X509Error>) -> X509Error {
        match error {
            x509_parser::nom::Err::Error(error) | x509_parser::nom::Err::Failure(error) => error,
            x509_parser::nom::Err::Incomplete(_) => X509Error::Generic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_takes_the_allowed_characters() {
        for name in ["a", "alice", "team-1_gpu.example", ".hidden", "...", &"x".repeat(64)] {
            assert_eq!(Tenant::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn tenant_refuses_other_names_and_says_the_rule() {
        let long = "x".repeat(65);
        for name in ["", ".", "..", "a b", "a/b", "a\0", "älice", "a\n", &long] {
            let error = Tenant::new(name).unwrap_err();
            assert!(error.to_string().contains("1 to 64 characters"), "{error}");
            assert!(error.name.chars().count() <= 64);
        }
    }

    #[test]
    fn fingerprint_of_bytes_is_those_bytes() {
        assert_eq!(Fingerprint::from_bytes([0; 32]), Fingerprint::UNAUTHENTICATED);
        assert_eq!(Fingerprint::from_bytes([0xab; 32]).to_string(), "ab".repeat(32));
        assert!(Fingerprint::of(&CertificateDer::from(b"certificate".to_vec())).is_err());
    }

    #[cfg(feature = "server")]
    mod certificates {
        use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData};

        use super::*;

        fn certificate(common_names: &[&str], dns_names: &[&str]) -> CertificateDer<'static> {
            let names = dns_names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let mut params = CertificateParams::new(names).unwrap();
            params.distinguished_name = DistinguishedName::new();
            for (index, name) in common_names.iter().enumerate() {
                // rcgen keeps one value for each type; a custom type with the same OID adds a second one.
                let kind = match index {
                    0 => DnType::CommonName,
                    _ => DnType::CustomDnType(vec![2, 5, 4, 3]),
                };
                params.distinguished_name.push(kind, *name);
            }
            params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
        }

        fn tenant(common_names: &[&str], dns_names: &[&str]) -> Result<Tenant, IdentityError> {
            Tenant::from_certificate(&certificate(common_names, dns_names))
        }

        #[test]
        fn fingerprint_is_the_hash_of_the_key() {
            let key = KeyPair::generate().unwrap();
            let issue = |name: &str| {
                let params = CertificateParams::new([name.to_owned()]).unwrap();
                params.self_signed(&key).unwrap().der().clone()
            };
            let expected = blake3::hash(&key.subject_public_key_info());
            for name in ["a.example", "renewed.example"] {
                assert_eq!(Fingerprint::of(&issue(name)).unwrap().as_bytes(), expected.as_bytes());
            }
            let other = Fingerprint::of(&certificate(&["alice"], &[])).unwrap();
            assert_ne!(other.as_bytes(), expected.as_bytes());
        }

        #[test]
        fn tenant_is_the_common_name_only() {
            assert_eq!(tenant(&["alice"], &["other.example"]).unwrap().as_str(), "alice");
            assert!(matches!(tenant(&[], &["bob.example"]), Err(IdentityError::NoName)));
        }

        #[test]
        fn certificate_without_a_valid_tenant_is_refused() {
            assert!(matches!(tenant(&[], &[]), Err(IdentityError::NoName)));
            let long = "x".repeat(3000);
            for name in ["", "a b", "alice\n", "a\u{1b}[31m", "a\0", "älice", &long] {
                let error = tenant(&[name], &["bob"]).unwrap_err();
                assert!(matches!(error, IdentityError::Tenant(_)), "{name:?}: {error}");
                let message = error.to_string();
                assert!(!message.contains(char::is_control) && message.len() < 500, "{message:?}");
            }
            let garbage = CertificateDer::from(vec![0x30, 3, 1, 2, 3]);
            assert!(matches!(Tenant::from_certificate(&garbage), Err(IdentityError::Malformed(_))));
            let empty = CertificateDer::from(Vec::new());
            assert!(matches!(Tenant::from_certificate(&empty), Err(IdentityError::Malformed(_))));
        }

        #[test]
        fn certificate_with_two_common_names_is_refused() {
            let result = tenant(&["alice", "bob"], &[]);
            assert!(matches!(result, Err(IdentityError::AmbiguousName { count: 2 })), "{result:?}");
        }
    }
}
