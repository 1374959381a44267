//! Reads certificates and private keys from PEM files. Each error names the file and the remedy.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

/// The size limit of a PEM file in bytes. A bundle of 150 public authorities has about 250 KB.
const MAX_BYTES: u64 = 1 << 20;

/// A PEM file that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PemError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}; check the path and the file's permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is longer than any sensible PEM file.
    #[error("{} has more than {limit} bytes, the limit of a PEM file; check the path", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// The file has a damaged section.
    #[error("{} is not valid PEM: {source}; copy the file again from its origin", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error of the PEM reader.
        source: pem::Error,
    },
    /// The file has no section with a certificate.
    #[error(
        "{} contains no certificate; it needs a section \"-----BEGIN CERTIFICATE-----\", so check that the paths of \
         certificate and key are not exchanged, and that the file is PEM and not DER",
        path.display()
    )]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The file has no section with a private key.
    #[error(
        "{} contains no private key; it needs a section \"-----BEGIN PRIVATE KEY-----\", so check that the paths of \
         certificate and key are not exchanged, and that the file is PEM and not DER",
        path.display()
    )]
    NoPrivateKey {
        /// The file.
        path: PathBuf,
    },
    /// The private key is encrypted with a password.
    #[error(
        "the private key in {path} is encrypted, which is not supported; decrypt it with `openssl pkey -in {path} \
         -out plain.key` and protect that file by its permissions",
        path = path.display()
    )]
    EncryptedKey {
        /// The file.
        path: PathBuf,
    },
}

/// Reads all certificates of a file, in order; there is at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let contents = read(path)?;
    let certificates = CertificateDer::pem_slice_iter(&contents)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| PemError::Malformed { path: path.to_owned(), source })?;
    if certificates.is_empty() {
        return Err(PemError::NoCertificate { path: path.to_owned() });
    }
    Ok(certificates)
}

/// Reads the first private key of a file.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, PemError> {
    let contents = read(path)?;
    PrivateKeyDer::from_pem_slice(&contents).map_err(|source| {
        let path = path.to_owned();
        match source {
            _ if is_encrypted(&contents) => PemError::EncryptedKey { path },
            pem::Error::NoItemsFound => PemError::NoPrivateKey { path },
            source => PemError::Malformed { path, source },
        }
    })
}

/// Detects both forms of encrypted keys: PKCS #8, and the header lines of OpenSSL's older form.
fn is_encrypted(contents: &[u8]) -> bool {
    contents.split(|byte| *byte == b'\n').any(|line| {
        line.starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
            || (line.starts_with(b"Proc-Type:") && line.trim_ascii_end().ends_with(b"ENCRYPTED"))
    })
}

fn read(path: &Path) -> Result<Vec<u8>, PemError> {
    let mut contents = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut contents))
        .map_err(|source| PemError::Read { path: path.to_owned(), source })?;
    if contents.len() as u64 > MAX_BYTES {
        return Err(PemError::TooLarge { path: path.to_owned(), limit: MAX_BYTES });
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with these contents, and the result of both readers.
    fn read_both(contents: &str) -> (Result<usize, PemError>, Result<(), PemError>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.pem");
        std::fs::write(&path, contents).unwrap();
        (certificates(&path).map(|all| all.len()), private_key(&path).map(drop))
    }

    #[test]
    fn missing_file_is_an_error_with_its_path() {
        let error = certificates(Path::new("/nonexistent/ca.pem")).unwrap_err();
        assert!(matches!(error, PemError::Read { .. }));
        assert!(error.to_string().contains("/nonexistent/ca.pem"), "{error}");
        assert!(matches!(private_key(Path::new("/nonexistent/a.key")), Err(PemError::Read { .. })));
        assert!(matches!(certificates(Path::new("/")), Err(PemError::Read { .. })));
    }

    #[test]
    fn file_without_the_section_is_refused() {
        let (certificate, key) = read_both("no sections here\n");
        assert!(matches!(certificate, Err(PemError::NoCertificate { .. })));
        assert!(matches!(key, Err(PemError::NoPrivateKey { .. })));
        let (certificate, key) =
            read_both("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        assert_eq!(certificate.unwrap(), 1);
        assert!(matches!(key, Err(PemError::NoPrivateKey { .. })));
        let (certificate, key) =
            read_both("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
        assert!(matches!(certificate, Err(PemError::NoCertificate { .. })));
        assert!(key.is_ok());
    }

    #[test]
    fn truncated_section_is_refused() {
        let (certificate, key) = read_both("-----BEGIN CERTIFICATE-----\nAAAA\n");
        assert!(matches!(certificate, Err(PemError::Malformed { .. })));
        assert!(matches!(key, Err(PemError::Malformed { .. })));
        let (certificate, _) =
            read_both("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n");
        assert!(matches!(certificate, Err(PemError::Malformed { .. })));
    }

    #[test]
    fn encrypted_key_is_refused_with_the_remedy() {
        let pkcs8 =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let openssl = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\r\nDEK-Info: AES-128-CBC,00\n\nAAAA\n\
                       -----END RSA PRIVATE KEY-----\n";
        for contents in [pkcs8, openssl] {
            let error = read_both(contents).1.unwrap_err();
            assert!(matches!(error, PemError::EncryptedKey { .. }), "{error}");
            assert!(error.to_string().contains("openssl pkey -in"), "{error}");
        }
    }

    #[test]
    fn endless_file_is_refused() {
        let error = certificates(Path::new("/dev/zero")).unwrap_err();
        assert!(matches!(error, PemError::TooLarge { limit: MAX_BYTES, .. }), "{error}");
    }
}
