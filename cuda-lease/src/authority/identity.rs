//! The identity of a client: the tenant that its certificate names, and the fingerprint of the certificate.

use std::fmt;

use data_encoding::HEXLOWER;
use rustls::pki_types::CertificateDer;
use thiserror::Error;

/// The length limit of a tenant's name in characters.
const MAX_TENANT: usize = 64;

/// The blake3 hash of a certificate: the 32-byte hash of the DER bytes of the end-entity certificate.
///
/// A renewed certificate has a new fingerprint, even if its key stays the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of every client of a node that verifies no client certificates: 32 zero bytes.
    pub const UNAUTHENTICATED: Self = Self([0; 32]);

    /// Returns the fingerprint of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(*blake3::hash(certificate.as_ref()).as_bytes())
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
pub use certificate::IdentityError;

#[cfg(feature = "server")]
mod certificate {
    use thiserror::Error;
    use x509_parser::error::X509Error;
    use x509_parser::prelude::{GeneralName, X509Certificate};

    use super::{CertificateDer, Tenant, TenantError};

    /// A connection from which no tenant can be derived.
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
        /// The subject has several common names, so the tenant is ambiguous.
        #[error(
            "the client's certificate has {count} common names; issue one with the tenant's name only"
        )]
        AmbiguousName {
            /// The number of common names in the subject.
            count: usize,
        },
        /// The certificate has neither a common name nor a DNS name.
        #[error(
            "the client's certificate names no tenant: it has no common name and no DNS name; issue one whose common \
             name is the tenant"
        )]
        NoName,
        /// The certificate's name is not a tenant's name.
        #[error("the client's certificate names no valid tenant: {0}")]
        Tenant(#[from] TenantError),
    }

    impl Tenant {
        /// Returns the tenant that a client certificate names: the subject's common name, else the first DNS name.
        ///
        /// The certificate must already be verified; this function checks no signature and no dates.
        ///
        /// # Errors
        ///
        /// [`IdentityError`] if the bytes are not a certificate, or the certificate names no valid tenant. A common
        /// name that is not valid is an error, also if a DNS name is present.
        pub fn from_certificate(certificate: &CertificateDer<'_>) -> Result<Self, IdentityError> {
            let (_, certificate) = x509_parser::parse_x509_certificate(certificate.as_ref())
                .map_err(|error| IdentityError::Malformed(x509_error(error)))?;
            let names = certificate.subject().iter_common_name().collect::<Vec<_>>();
            match names.as_slice() {
                [] => Ok(Self::new(first_dns_name(&certificate)?)?),
                [name] => Ok(Self::new(name.as_str().map_err(IdentityError::Malformed)?)?),
                names => Err(IdentityError::AmbiguousName { count: names.len() }),
            }
        }
    }

    fn x509_error(error: x509_parser::nom::Err<X509Error>) -> X509Error {
        match error {
            x509_parser::nom::Err::Error(error) | x509_parser::nom::Err::Failure(error) => error,
            x509_parser::nom::Err::Incomplete(_) => X509Error::Generic,
        }
    }

    fn first_dns_name<'a>(certificate: &'a X509Certificate<'_>) -> Result<&'a str, IdentityError> {
        let names = certificate.subject_alternative_name().map_err(IdentityError::Malformed)?;
        names
            .and_then(|extension| {
                extension.value.general_names.iter().find_map(|name| match name {
                    GeneralName::DNSName(name) => Some(*name),
                    _ => None,
                })
            })
            .ok_or(IdentityError::NoName)
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
    fn fingerprint_is_the_hash_of_the_certificate() {
        let fingerprint = Fingerprint::of(&CertificateDer::from(b"certificate".to_vec()));
        assert_eq!(fingerprint.as_bytes(), blake3::hash(b"certificate").as_bytes());
        assert_eq!(fingerprint.to_string(), blake3::hash(b"certificate").to_hex().as_str());
        assert_eq!(Fingerprint::from_bytes([0; 32]), Fingerprint::UNAUTHENTICATED);
    }

    #[cfg(feature = "server")]
    mod certificates {
        use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

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
        fn tenant_is_the_common_name_else_the_first_dns_name() {
            assert_eq!(tenant(&["alice"], &["other.example"]).unwrap().as_str(), "alice");
            assert_eq!(
                tenant(&[], &["10.0.0.1", "bob.example", "c"]).unwrap().as_str(),
                "bob.example"
            );
        }

        #[test]
        fn certificate_without_a_valid_tenant_is_refused() {
            assert!(matches!(tenant(&[], &[]), Err(IdentityError::NoName)));
            assert!(matches!(tenant(&[], &["10.0.0.1"]), Err(IdentityError::NoName)));
            assert!(matches!(tenant(&["a b"], &["bob"]), Err(IdentityError::Tenant(_))));
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
