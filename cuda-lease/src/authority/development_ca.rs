//! Certificates for development and tests: an authority, a node and clients, as PEM files in one directory.
//!
//! The authority's key stays in the directory, so that more clients can be added. A production installation uses the
//! authority of its organization instead.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{DnsName, PrivateKeyDer};
use thiserror::Error;
use x509_parser::prelude::GeneralName;

use super::{
    identity::{Tenant, TenantError},
    pem::{self, PemError},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The time before its creation from which a certificate is valid, so that peers with slow clocks accept it.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);
const AUTHORITY: &str = "ca";
const NODE: &str = "node";

/// Creates the certificates of a development installation in one directory.
///
/// | file | contents |
/// |---|---|
/// | `ca.pem`, `ca.key` | the authority; created if neither file exists, else used |
/// | `node.pem`, `node.key` | the node's certificate for all hosts, if a host is given |
/// | `TENANT.pem`, `TENANT.key` | the certificate of one client each, whose common name is the tenant |
///
/// Keys are ECDSA P-256, and their files have mode 0600. An existing file is an error, unless
/// [`replace`](DevelopmentCertificates::replace) or [`keep`](DevelopmentCertificates::keep) is set. A node's
/// certificate cannot act as a client, nor a client's as a node.
///
/// ```no_run
/// use cuda_lease::authority::DevelopmentCertificates;
///
/// let certificates = DevelopmentCertificates::new("certs").host("localhost").host("10.0.0.5").client("alice");
/// for file in certificates.create()?.files {
///     println!("{}", file.display());
/// }
/// # Ok::<(), cuda_lease::authority::DevelopmentCaError>(())
/// ```
#[derive(Clone, Debug)]
pub struct DevelopmentCertificates {
    directory: PathBuf,
    hosts: Vec<String>,
    clients: Vec<String>,
    days: u32,
    replace: bool,
    keep: bool,
}

/// The files that [`DevelopmentCertificates::create`] wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreatedCertificates {
    /// The paths of the new files, in the order of their creation.
    pub files: Vec<PathBuf>,
    /// Whether the authority existed before and was used again.
    pub authority_reused: bool,
}

/// Certificates that cannot be created.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DevelopmentCaError {
    /// A host is neither a DNS name nor an IP address.
    #[error(
        "host {host:?} is neither a DNS name nor an IP address; write it without a port and brackets"
    )]
    Host {
        /// The host.
        host: String,
    },
    /// A client's name is not a tenant's name.
    #[error(transparent)]
    Client(#[from] TenantError),
    /// The files of a client would have the names of the authority's or node's files.
    #[error(
        "client name {name:?} is refused: {name}.pem is a file of the installation itself; choose another name"
    )]
    ReservedName {
        /// The client's name.
        name: String,
    },
    /// The validity is outside the supported range.
    #[error(
        "a validity of {days} days is refused: certificates are valid for 1 to {limit} days",
        limit = DevelopmentCertificates::MAX_DAYS
    )]
    Days {
        /// The validity that was asked for, in days.
        days: u32,
    },
    /// A file to be created exists.
    #[error("{} exists and is not overwritten; delete it, or use another directory or client name", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// An existing certificate cannot be kept.
    #[error("{} cannot be kept: {reason}; replace it, or use another directory", path.display())]
    Unsuitable {
        /// The file.
        path: PathBuf,
        /// The property that makes it unsuitable.
        reason: String,
    },
    /// The directory has only one of the authority's two files.
    #[error(
        "{} is missing, but the authority's other file exists; restore it, or use an empty directory",
        path.display()
    )]
    IncompleteAuthority {
        /// The missing file.
        path: PathBuf,
    },
    /// A file of the existing authority cannot be read.
    #[error("the existing authority cannot be used: {0}")]
    Pem(#[from] PemError),
    /// The existing authority cannot issue certificates.
    #[error("the authority in {} cannot be used: {reason}; use an empty directory for a new one", path.display())]
    Authority {
        /// The authority's certificate.
        path: PathBuf,
        /// The property that makes it unusable.
        reason: &'static str,
    },
    /// A file or the directory cannot be written.
    #[error("cannot write {}: {source}; check the directory's permissions and free space", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The certificate library refuses to create a certificate.
    #[error("cannot create a certificate: {0}; report this as a fault of cuda-lease")]
    Create(#[from] rcgen::Error),
    /// The clock of this machine is outside the years 1970 to 9999.
    #[error("the clock of this machine is outside the years 1970 to 9999; set it and try again")]
    Clock,
}

impl DevelopmentCertificates {
    /// The longest validity in days: ten years.
    pub const MAX_DAYS: u32 = 3650;

    /// Starts with no host and no client, and a validity of 365 days. The directory is created if it does not exist.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            hosts: Vec::new(),
            clients: Vec::new(),
            days: 365,
            replace: false,
            keep: false,
        }
    }

    /// Adds a DNS name or IP address under which clients reach the node.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    /// Adds a client. Its name is its tenant; `ca` and `node` are reserved.
    pub fn client(mut self, name: impl Into<String>) -> Self {
        self.clients.push(name.into());
        self
    }

    /// Sets the validity of node and client certificates, 1 to [`MAX_DAYS`](Self::MAX_DAYS) days. The authority's
    /// certificate is always valid for `MAX_DAYS`.
    pub fn days(self, days: u32) -> Self {
        Self { days, ..self }
    }

    /// Replaces existing certificates and keys of the node and of the clients. The authority stays.
    pub fn replace(self) -> Self {
        Self { replace: true, ..self }
    }

    /// Keeps existing certificates of the node and of the clients that the authority of the directory issued and that
    /// are valid. That of the node has to state all hosts. If nothing is left to create, the first existing file is
    /// [`Exists`](DevelopmentCaError::Exists).
    pub fn keep(self) -> Self {
        Self { keep: true, ..self }
    }

    /// Creates the files. All names and existing files are checked before the first file is written.
    ///
    /// # Errors
    ///
    /// [`DevelopmentCaError`] names the host, client or file. If a write fails, files that were created before remain.
    pub fn create(&self) -> Result<CreatedCertificates, DevelopmentCaError> {
        if !(1..=Self::MAX_DAYS).contains(&self.days) {
            return Err(DevelopmentCaError::Days { days: self.days });
        }
        let mut hosts =
            self.hosts.iter().map(|host| alternative_name(host)).collect::<Result<Vec<_>, _>>()?;
        let mut clients =
            self.clients.iter().map(|name| client(name)).collect::<Result<BTreeSet<_>, _>>()?;
        if self.keep && !self.replace {
            self.leave_out_kept(&mut hosts, &mut clients)?;
        }
        for name in clients.iter().map(Tenant::as_str).chain((!hosts.is_empty()).then_some(NODE)) {
            self.check_new(name)?;
        }
        let existing = self.existing_authority()?;
        fs::create_dir_all(&self.directory)
            .map_err(|source| DevelopmentCaError::Write { path: self.directory.clone(), source })?;

        let mut created =
            CreatedCertificates { files: Vec::new(), authority_reused: existing.is_some() };
        let authority = match existing {
            Some(authority) => authority,
            None => self.create_authority(&mut created)?,
        };
        if !hosts.is_empty() {
            let mut params = end_entity("cuda-lease node", ExtendedKeyUsagePurpose::ServerAuth);
            params.subject_alt_names = hosts;
            self.issue(NODE, params, &authority, &mut created)?;
        }
        for tenant in &clients {
            let params = end_entity(tenant.as_str(), ExtendedKeyUsagePurpose::ClientAuth);
            self.issue(tenant.as_str(), params, &authority, &mut created)?;
        }
        Ok(created)
    }

    fn certificate_path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.pem"))
    }

    fn key_path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.key"))
    }

    fn check_new(&self, name: &str) -> Result<(), DevelopmentCaError> {
        for path in [self.certificate_path(name), self.key_path(name)] {
            if !self.replace && path.symlink_metadata().is_ok() {
                return Err(DevelopmentCaError::Exists { path });
            }
        }
        Ok(())
    }

    /// Loads the authority in the directory, if there is one.
    fn existing_authority(&self) -> Result<Option<Issuer<'static, KeyPair>>, DevelopmentCaError> {
        let (certificate, key) = (self.certificate_path(AUTHORITY), self.key_path(AUTHORITY));
        match (certificate.symlink_metadata().is_ok(), key.symlink_metadata().is_ok()) {
            (false, false) => Ok(None),
            (true, false) => Err(DevelopmentCaError::IncompleteAuthority { path: key }),
            (false, true) => Err(DevelopmentCaError::IncompleteAuthority { path: certificate }),
            (true, true) => load_authority(&certificate, &key).map(Some),
        }
    }

    fn create_authority(
        &self,
        created: &mut CreatedCertificates,
    ) -> Result<Issuer<'static, KeyPair>, DevelopmentCaError> {
        let key = KeyPair::generate()?;
        // Two authorities have different names, so that a certificate of the other one fails with a clear error.
        let id = blake3::hash(key.public_key_raw()).to_hex();
        let mut params =
            with_common_name(&format!("cuda-lease development authority {}", &id[..8]));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, Self::MAX_DAYS)?;
        let certificate = params.self_signed(&key)?;
        self.write(AUTHORITY, &certificate.pem(), &key, created)?;
        Ok(Issuer::new(params, key))
    }

    fn issue(
        &self,
        name: &str,
        mut params: CertificateParams,
        authority: &Issuer<'static, KeyPair>,
        created: &mut CreatedCertificates,
    ) -> Result<(), DevelopmentCaError> {
        set_validity(&mut params, self.days)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, authority)?;
        self.write(name, &certificate.pem(), &key, created)
    }

    fn write(
        &self,
        name: &str,
        certificate: &str,
        key: &KeyPair,
        created: &mut CreatedCertificates,
    ) -> Result<(), DevelopmentCaError> {
        let (path, key_path) = (self.certificate_path(name), self.key_path(name));
        if self.replace {
            remove_old(&path)?;
            remove_old(&key_path)?;
        }
        write_new(path, certificate, 0o644, created)?;
        write_new(key_path, &key.serialize_pem(), 0o600, created)
    }

    /// Removes the hosts and clients whose certificates are kept.
    fn leave_out_kept(
        &self,
        hosts: &mut Vec<SanType>,
        clients: &mut BTreeSet<Tenant>,
    ) -> Result<(), DevelopmentCaError> {
        let exists = |name: &str| {
            let paths = [self.certificate_path(name), self.key_path(name)];
            paths.iter().all(|path| path.symlink_metadata().is_ok())
        };
        let has_node = !hosts.is_empty() && exists(NODE);
        let kept: Vec<_> =
            clients.iter().filter(|client| exists(client.as_str())).cloned().collect();
        if has_node {
            self.check_kept(NODE, hosts)?;
        }
        for tenant in &kept {
            self.check_kept(tenant.as_str(), &[])?;
        }
        let first = if has_node { Some(NODE) } else { kept.first().map(Tenant::as_str) };
        if let Some(first) = first
            && (has_node || hosts.is_empty())
            && kept.len() == clients.len()
        {
            // Nothing is left to create.
            return Err(DevelopmentCaError::Exists { path: self.certificate_path(first) });
        }
        if has_node {
            hosts.clear();
        }
        clients.retain(|tenant| !kept.contains(tenant));
        Ok(())
    }

    /// Checks that a certificate can be kept: the authority issued it, it is valid, and it states all `hosts`.
    fn check_kept(&self, name: &str, hosts: &[SanType]) -> Result<(), DevelopmentCaError> {
        let (path, authority) = (self.certificate_path(name), self.certificate_path(AUTHORITY));
        let refused =
            |reason: String| DevelopmentCaError::Unsuitable { path: path.clone(), reason };
        let unreadable = |_| refused("it is not an X.509 certificate".into());
        let (own, authority) = (pem::certificates(&path)?, pem::certificates(&authority)?);
        let ([own, ..], [authority, ..]) = (&*own, &*authority) else { return Ok(()) };
        let (_, own) = x509_parser::parse_x509_certificate(own).map_err(unreadable)?;
        let (_, authority) = x509_parser::parse_x509_certificate(authority).map_err(unreadable)?;
        // The name of an authority contains a hash of its key.
        if own.issuer() != authority.subject() {
            return Err(refused("another authority issued it".into()));
        }
        if !own.validity().is_valid() {
            return Err(refused("it has expired or is not valid yet".into()));
        }
        let stated = own.subject_alternative_name().ok().flatten();
        let stated = stated.map(|extension| &*extension.value.general_names).unwrap_or_default();
        for host in hosts {
            let is_stated = |name| states(name, host);
            if !stated.iter().any(is_stated) {
                let host = match host {
                    SanType::DnsName(host) => host.to_string(),
                    SanType::IpAddress(host) => host.to_string(),
                    other => format!("{other:?}"),
                };
                return Err(refused(format!("it does not state the host {host}")));
            }
        }
        Ok(())
    }
}

/// Checks a host and returns it as a name of the node's certificate.
fn alternative_name(host: &str) -> Result<SanType, DevelopmentCaError> {
    let refused = || DevelopmentCaError::Host { host: host.to_owned() };
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    DnsName::try_from(host).map_err(|_| refused())?;
    Ok(SanType::DnsName(host.try_into().map_err(|_| refused())?))
}

fn client(name: &str) -> Result<Tenant, DevelopmentCaError> {
    if matches!(name, AUTHORITY | NODE) {
        return Err(DevelopmentCaError::ReservedName { name: name.to_owned() });
    }
    Ok(Tenant::new(name)?)
}

fn with_common_name(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn end_entity(common_name: &str, purpose: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = with_common_name(common_name);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
    params
}

/// Makes a certificate valid from an hour ago until `days` days from now.
fn set_validity(params: &mut CertificateParams, days: u32) -> Result<(), DevelopmentCaError> {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_err(|_| DevelopmentCaError::Clock)?;
    let timestamp = |since_epoch: Duration| {
        let since_epoch = since_epoch.try_into().map_err(|_| DevelopmentCaError::Clock)?;
        rcgen::date_time_ymd(1970, 1, 1).checked_add(since_epoch).ok_or(DevelopmentCaError::Clock)
    };
    params.not_before = timestamp(now.saturating_sub(CLOCK_SKEW))?;
    params.not_after = timestamp(now + DAY * days)?;
    Ok(())
}

/// Loads an authority and checks that it can issue certificates and that the key is its own.
fn load_authority(
    path: &Path,
    key_path: &Path,
) -> Result<Issuer<'static, KeyPair>, DevelopmentCaError> {
    let refused = |reason| DevelopmentCaError::Authority { path: path.to_owned(), reason };
    let key: PrivateKeyDer<'static> = pem::private_key(key_path)?;
    let key = KeyPair::try_from(&key).map_err(|_| refused("its key has an unsupported type"))?;
    let certificates = pem::certificates(path)?;
    let [certificate] = certificates.as_slice() else {
        return Err(refused("the file has more than one certificate"));
    };
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate.as_ref())
        .map_err(|_| refused("it is not an X.509 certificate"))?;
    if !parsed.is_ca() {
        return Err(refused("it is not the certificate of an authority"));
    }
    if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
        return Err(refused("ca.key belongs to another certificate"));
    }
    if !parsed.validity().is_valid() {
        return Err(refused("it has expired or is not valid yet"));
    }
    Ok(Issuer::from_ca_cert_der(certificate, key)?)
}

/// Removes a file that is replaced, if there is one. The new file then has the mode that it is created with.
fn remove_old(path: &Path) -> Result<(), DevelopmentCaError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(DevelopmentCaError::Write { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Creates a file with this mode and writes it, or removes it again.
fn write_new(
    path: PathBuf,
    contents: &str,
    mode: u32,
    created: &mut CreatedCertificates,
) -> Result<(), DevelopmentCaError> {
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(mode).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(DevelopmentCaError::Exists { path });
        }
        Err(source) => return Err(DevelopmentCaError::Write { path, source }),
    };
    if let Err(source) = file.write_all(contents.as_bytes()) {
        // The error of the write is more useful than that of the removal.
        let _ = fs::remove_file(&path);
        return Err(DevelopmentCaError::Write { path, source });
    }
    created.files.push(path);
    Ok(())
}

/// Whether a name in a certificate is this host.
fn states(name: &GeneralName<'_>, host: &SanType) -> bool {
    match (name, host) {
        (GeneralName::DNSName(name), SanType::DnsName(host)) => {
            name.eq_ignore_ascii_case(host.as_str())
        }
        (GeneralName::IPAddress(name), SanType::IpAddress(IpAddr::V4(host))) => {
            *name == host.octets()
        }
        (GeneralName::IPAddress(name), SanType::IpAddress(IpAddr::V6(host))) => {
            *name == host.octets()
        }
        _ => false,
    }
}

#[cfg(test)]
#[cfg(feature = "server")]
mod tests;
