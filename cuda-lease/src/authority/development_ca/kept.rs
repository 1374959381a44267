//! Certificates of an earlier call that are kept.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rcgen::SanType;
use x509_parser::prelude::GeneralName;

use super::{AUTHORITY, DevelopmentCaError, DevelopmentCertificates, NODE, pem};
use crate::authority::Tenant;

impl DevelopmentCertificates {
    /// Removes the hosts and clients whose certificates are kept.
    pub(super) fn leave_out_kept(
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
