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
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, DnsName, PrivateKeyDer};
use thiserror::Error;
use x509_parser::prelude::{ASN1Time, CertificateRevocationList, FromDer, GeneralName};

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
/// | `ca.crl` | the list of revoked certificates, empty at first; see [`revoke`](DevelopmentCertificates::revoke) |
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
    /// The directory has no authority that could revoke a certificate.
    #[error("{} does not exist, so there is no authority that revokes certificates; choose its directory", path.display())]
    NoAuthority {
        /// The missing file.
        path: PathBuf,
    },
    /// A certificate cannot be revoked.
    #[error("{} cannot be revoked: {reason}", path.display())]
    NotRevocable {
        /// The certificate's file.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
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

    /// Revokes the certificates of the clients: adds them to the list `ca.crl`, which a node reads
    /// ([`ServerTls::revoked`](super::ServerTls::revoked)). The list keeps its earlier entries. Their files stay, and
    /// [`replace`](Self::replace) creates new ones for the same names. Returns the path of the list.
    ///
    /// # Errors
    ///
    /// [`DevelopmentCaError`] names the client or file. Then the list is unchanged.
    pub fn revoke(&self) -> Result<PathBuf, DevelopmentCaError> {
        let path = self.certificate_path(AUTHORITY);
        let authority = self.existing_authority()?;
        let authority = authority.ok_or(DevelopmentCaError::NoAuthority { path })?;
        let now = timestamp(since_epoch()?)?.to_datetime();
        let (number, mut entries) = self.revoked()?;
        for name in &self.clients {
            let serial_number = self.serial_of(client(name)?.as_str())?;
            if !entries.iter().any(|entry| entry.serial_number == serial_number) {
                entries.push(RevokedCertParams {
                    serial_number,
                    revocation_time: now,
                    reason_code: None,
                    invalidity_date: None,
                });
            }
        }
        let list = revocation_list(number + 1, entries, &authority)?;
        // A node may read the list at any time.
        let (path, temporary) = (self.list_path(), self.directory.join("ca.crl.new"));
        remove_old(&temporary)?;
        let mut created = CreatedCertificates { files: Vec::new(), authority_reused: true };
        write_new(temporary.clone(), &list, 0o644, &mut created)?;
        let failed = |source| DevelopmentCaError::Write { path: path.clone(), source };
        fs::rename(temporary, &path).map_err(failed)?;
        Ok(path)
    }

    /// The number and the entries of the list of revoked certificates.
    fn revoked(&self) -> Result<(u64, Vec<RevokedCertParams>), DevelopmentCaError> {
        let path = self.list_path();
        if path.symlink_metadata().is_err() {
            return Ok((0, Vec::new()));
        }
        let refused = |reason| DevelopmentCaError::Authority { path: path.clone(), reason };
        let lists = pem::revocation_lists(&path)?;
        let [list] = &*lists else { return Err(refused("the file has more than one list")) };
        let (_, list) = CertificateRevocationList::from_der(list)
            .map_err(|_| refused("it is not a list of revoked certificates"))?;
        let authority = pem::certificates(&self.certificate_path(AUTHORITY))?;
        let is_issuer = |authority: &CertificateDer<'_>| {
            let parsed = x509_parser::parse_x509_certificate(authority);
            parsed.is_ok_and(|(_, authority)| authority.subject() == list.issuer())
        };
        if !authority.first().is_some_and(is_issuer) {
            return Err(refused("another authority issued the list"));
        }
        let number = list.crl_number().and_then(|number| number.iter_u64_digits().next());
        let entries = list.iter_revoked_certificates().map(|entry| RevokedCertParams {
            serial_number: SerialNumber::from_slice(entry.raw_serial()),
            revocation_time: entry.revocation_date.to_datetime(),
            reason_code: None,
            invalidity_date: None,
        });
        Ok((number.unwrap_or(0), entries.collect()))
    }

    /// The serial number of a certificate that the authority issued.
    fn serial_of(&self, name: &str) -> Result<SerialNumber, DevelopmentCaError> {
        let path = self.certificate_path(name);
        let refused = |reason| DevelopmentCaError::NotRevocable { path: path.clone(), reason };
        let unreadable = |_| refused("it is not an X.509 certificate");
        if path.symlink_metadata().is_err() {
            return Err(refused("there is no such file; check the name of the client"));
        }
        let (own, authority) =
            (pem::certificates(&path)?, pem::certificates(&self.certificate_path(AUTHORITY))?);
        let ([own, ..], [authority, ..]) = (&*own, &*authority) else {
            return Err(refused("there is no certificate"));
        };
        let (_, own) = x509_parser::parse_x509_certificate(own).map_err(unreadable)?;
        let (_, authority) = x509_parser::parse_x509_certificate(authority).map_err(unreadable)?;
        if own.issuer() != authority.subject() {
            return Err(refused("another authority issued it"));
        }
        Ok(SerialNumber::from_slice(own.raw_serial()))
    }

    fn list_path(&self) -> PathBuf {
        self.directory.join("ca.crl")
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
        let authority = Issuer::new(params, key);
        let list = revocation_list(1, Vec::new(), &authority)?;
        remove_old(&self.list_path())?;
        write_new(self.list_path(), &list, 0o644, created)?;
        Ok(authority)
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
    let now = since_epoch()?;
    params.not_before = timestamp(now.saturating_sub(CLOCK_SKEW))?.to_datetime();
    params.not_after = timestamp(now + DAY * days)?.to_datetime();
    Ok(())
}

/// A list of revoked certificates in PEM, whose next update is due when the authority has expired.
fn revocation_list(
    number: u64,
    revoked_certs: Vec<RevokedCertParams>,
    authority: &Issuer<'static, KeyPair>,
) -> Result<String, DevelopmentCaError> {
    let now = since_epoch()?;
    let list = CertificateRevocationListParams {
        this_update: timestamp(now.saturating_sub(CLOCK_SKEW))?.to_datetime(),
        next_update: timestamp(now + DAY * DevelopmentCertificates::MAX_DAYS)?.to_datetime(),
        crl_number: SerialNumber::from(number),
        issuing_distribution_point: None,
        revoked_certs,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    Ok(list.signed_by(authority)?.pem()?)
}

fn since_epoch() -> Result<Duration, DevelopmentCaError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_err(|_| DevelopmentCaError::Clock)
}

fn timestamp(since_epoch: Duration) -> Result<ASN1Time, DevelopmentCaError> {
    let seconds = since_epoch.as_secs().try_into().map_err(|_| DevelopmentCaError::Clock)?;
    ASN1Time::from_timestamp(seconds).map_err(|_| DevelopmentCaError::Clock)
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
