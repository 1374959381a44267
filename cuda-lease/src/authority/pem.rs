//! Reads certificates, private keys and lists of revoked certificates from files. Each error names the file and the
//! remedy.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

#[cfg(feature = "certs")]
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

/// The size limit of a file with certificates or a key, in bytes. A bundle of 150 public authorities has about 250 KB.
const MAX_BYTES: u64 = 1 << 20;

/// The size limit of a file with lists of revoked certificates, in bytes. 100,000 entries have about 4 MB.
#[cfg(feature = "certs")]
const MAX_LIST_BYTES: u64 = 64 << 20;

/// The bits of a file's mode with which group or others can use it.
#[cfg(unix)]
const FOREIGN: u32 = 0o077;

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
    /// The path is that of a folder, a FIFO or a device.
    #[error("{} is not a regular file; check the path, or copy the contents to a file", path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
    },
    /// The file is longer than any sensible one.
    #[error("{} has more than {limit} bytes, the limit of such a file; check the path", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// Other users of the machine can use the file of a private key.
    #[error(
        "the private key in {path} is not used, because group or others can access the file (mode {mode:04o}); run \
         `chmod 600 {path}`",
        path = path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The permissions of the file.
        mode: u32,
    },
    /// The file has no list of revoked certificates.
    #[error(
        "{} contains no list of revoked certificates; it needs a section \"-----BEGIN X509 CRL-----\", or the DER \
         bytes of one list",
        path.display()
    )]
    NoRevocationList {
        /// The file.
        path: PathBuf,
    },
    /// The file has a damaged section.
    #[error("{} is not valid PEM: {}; copy the file again from its origin", path.display(), problem(source))]
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

/// The error of the PEM reader in words. Its own text has the bytes of the missing line as numbers.
fn problem(source: &pem::Error) -> String {
    match source {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("its line -----END {}----- is missing", String::from_utf8_lossy(end_marker))
        }
        other => other.to_string(),
    }
}

/// Reads all certificates of a file, in order; there is at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let contents = read(&mut open(path)?, path, MAX_BYTES)?;
    let certificates = CertificateDer::pem_slice_iter(&contents)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| PemError::Malformed { path: path.to_owned(), source })?;
    if certificates.is_empty() {
        return Err(PemError::NoCertificate { path: path.to_owned() });
    }
    Ok(certificates)
}

/// Reads the first private key of a file. On Unix only its owner may have access to the file.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, PemError> {
    let mut file = open(path)?;
    check_private(&file, path)?;
    let contents = read(&mut file, path, MAX_BYTES)?;
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

/// Reads all lists of revoked certificates of a file, in PEM, or one list in DER. There is at least one.
#[cfg(feature = "certs")]
pub(super) fn revocation_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, PemError> {
    /// The first byte of every list in DER. No PEM file begins with it.
    const SEQUENCE: u8 = 0x30;
    let contents = read(&mut open(path)?, path, MAX_LIST_BYTES)?;
    if contents.first() == Some(&SEQUENCE) {
        return Ok(vec![contents.into()]);
    }
    let lists = CertificateRevocationListDer::pem_slice_iter(&contents)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| PemError::Malformed { path: path.to_owned(), source })?;
    if lists.is_empty() {
        return Err(PemError::NoRevocationList { path: path.to_owned() });
    }
    Ok(lists)
}

/// Opens a regular file. To open a FIFO would block until a process writes to it.
fn open(path: &Path) -> Result<File, PemError> {
    let failed = |source| PemError::Read { path: path.to_owned(), source };
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(PemError::NotRegular { path: path.to_owned() });
    }
    File::open(path).map_err(failed)
}

/// Checks that only the owner of an open file has access to it. Other systems than Unix have no such mode.
fn check_private(file: &File, path: &Path) -> Result<(), PemError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let metadata =
            file.metadata().map_err(|source| PemError::Read { path: path.to_owned(), source })?;
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & FOREIGN != 0 {
            return Err(PemError::Exposed { path: path.to_owned(), mode });
        }
    }
    #[cfg(not(unix))]
    let _ = (file, path);
    Ok(())
}

fn read(file: &mut File, path: &Path, limit: u64) -> Result<Vec<u8>, PemError> {
    let mut contents = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut contents)
        .map_err(|source| PemError::Read { path: path.to_owned(), source })?;
    if contents.len() as u64 > limit {
        return Err(PemError::TooLarge { path: path.to_owned(), limit });
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a file that only its owner can read.
    fn write_private(path: &Path, contents: &str) {
        std::fs::write(path, contents).unwrap();
        #[cfg(unix)]
        set_mode(path, 0o600);
    }

    #[cfg(unix)]
    fn set_mode(path: &Path, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn key_that_group_or_others_can_use_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        write_private(&path, key);
        for mode in [0o640, 0o604, 0o620, 0o610, 0o644, 0o666] {
            set_mode(&path, mode);
            let error = private_key(&path).unwrap_err();
            assert!(matches!(error, PemError::Exposed { .. }), "{mode:o}: {error}");
            let remedy = format!("`chmod 600 {}`", path.display());
            assert!(error.to_string().contains(&remedy), "{error}");
            assert!(error.to_string().contains(&format!("{mode:04o}")), "{error}");
        }
        for mode in [0o600, 0o400] {
            set_mode(&path, mode);
            private_key(&path).unwrap();
        }
    }

    #[cfg(feature = "certs")]
    #[test]
    fn revocation_lists_are_pem_or_der() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.crl");
        let count = |contents: &[u8]| {
            std::fs::write(&path, contents).unwrap();
            revocation_lists(&path).map(|lists| lists.len())
        };
        let section = "-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n";
        assert_eq!(count(section.repeat(2).as_bytes()).unwrap(), 2);
        assert_eq!(count(&[0x30, 0]).unwrap(), 1);
        let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for none in ["", "text", certificate] {
            let error = count(none.as_bytes()).unwrap_err();
            assert!(matches!(error, PemError::NoRevocationList { .. }), "{error}");
        }
        let error = count(&section.as_bytes()[..40]).unwrap_err();
        assert!(matches!(error, PemError::Malformed { .. }), "{error}");
        let missing = revocation_lists(Path::new("/nonexistent/ca.crl")).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/ca.crl"), "{missing}");
    }

    /// A file with these contents, and the result of both readers.
    fn read_both(contents: &str) -> (Result<usize, PemError>, Result<(), PemError>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.pem");
        write_private(&path, contents);
        (certificates(&path).map(|all| all.len()), private_key(&path).map(drop))
    }

    #[test]
    fn missing_file_is_an_error_with_its_path() {
        let error = certificates(Path::new("/nonexistent/ca.pem")).unwrap_err();
        assert!(matches!(error, PemError::Read { .. }));
        assert!(error.to_string().contains("/nonexistent/ca.pem"), "{error}");
        assert!(matches!(private_key(Path::new("/nonexistent/a.key")), Err(PemError::Read { .. })));
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
        let error = certificate.unwrap_err();
        assert!(matches!(error, PemError::Malformed { .. }));
        assert!(
            error.to_string().contains("its line -----END CERTIFICATE----- is missing"),
            "{error}"
        );
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
    fn large_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MAX_BYTES + 1).unwrap();
        let error = certificates(file.path()).unwrap_err();
        assert!(matches!(error, PemError::TooLarge { limit: MAX_BYTES, .. }), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        for path in [Path::new("/"), Path::new("/dev/zero"), &fifo] {
            for error in [certificates(path).unwrap_err(), private_key(path).unwrap_err()] {
                assert!(matches!(error, PemError::NotRegular { .. }), "{error}");
                assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            }
        }
    }
}
