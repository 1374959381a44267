//! Addresses of leases: `lease://HOST:PORT?min_vram=1GiB&lease_secs=60`.

use std::{path::PathBuf, time::Duration};

use crate::wire::{ByteSizeError, Exclusivity, parse_bytes};

/// An invalid address of a lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text does not begin with `lease://`, or has no port.
    #[error("`{address}` is not the address of a lease; write `lease://HOST:PORT?min_vram=1GiB`")]
    Form {
        /// The text.
        address: String,
    },
    /// An option is unknown.
    #[error(
        "unknown option `{name}`; the options of a lease are min_vram, lease_secs, exclusive, device, wait, priority, \
         renew_secs, ca, cert, key and server_name"
    )]
    Option {
        /// The name of the option.
        name: String,
    },
    /// The value of an option is invalid.
    #[error("the option `{name}` has the value `{value}`; {expected}")]
    Value {
        /// The name of the option.
        name: String,
        /// Its value.
        value: String,
        /// The values that it takes.
        expected: String,
    },
}

/// An address and its options. `None` for an option that the address does not state.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Address {
    /// `HOST:PORT`.
    pub(super) node: String,
    pub(super) min_vram: Option<u64>,
    pub(super) lease_secs: Option<u32>,
    pub(super) exclusivity: Option<Exclusivity>,
    pub(super) device: Option<String>,
    pub(super) wait: Option<Duration>,
    pub(super) priority: Option<i32>,
    pub(super) renew: Option<Duration>,
    pub(super) ca: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) server_name: Option<String>,
}

impl Address {
    pub(super) fn parse(address: &str) -> Result<Self, AddressError> {
        let form = || AddressError::Form { address: address.to_owned() };
        let rest = address.strip_prefix("lease://").ok_or_else(form)?;
        let (node, options) = rest.split_once('?').unwrap_or((rest, ""));
        let node = node.trim_end_matches('/');
        if !has_port(node) {
            return Err(form());
        }
        let mut parsed = Self { node: node.to_owned(), ..Self::default() };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            parsed.set(name, value)?;
        }
        Ok(parsed)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), AddressError> {
        let number = "write a whole number of seconds";
        match name {
            "min_vram" => {
                let bytes = parse_bytes(value);
                let fail = |error: ByteSizeError| invalid(name, value, &error.to_string());
                self.min_vram = Some(bytes.map_err(fail)?);
            }
            "lease_secs" => self.lease_secs = Some(parse(name, value, number)?),
            "exclusive" => {
                let class = Exclusivity::named(value);
                let class = class
                    .ok_or_else(|| invalid(name, value, "write `shared`, `session` or `device`"))?;
                self.exclusivity = Some(class);
            }
            "device" => self.device = Some(value.to_owned()),
            "wait" => self.wait = Some(Duration::from_secs(parse(name, value, number)?)),
            "priority" => self.priority = Some(parse(name, value, "write a whole number")?),
            "renew_secs" => self.renew = Some(Duration::from_secs(parse(name, value, number)?)),
            "ca" => self.ca = Some(value.into()),
            "cert" => self.cert = Some(value.into()),
            "key" => self.key = Some(value.into()),
            "server_name" => self.server_name = Some(value.to_owned()),
            _ => return Err(AddressError::Option { name: name.to_owned() }),
        }
        Ok(())
    }
}

fn parse<T: std::str::FromStr>(name: &str, value: &str, expected: &str) -> Result<T, AddressError> {
    value.parse().map_err(|_| invalid(name, value, expected))
}

fn invalid(name: &str, value: &str, expected: &str) -> AddressError {
    let (name, value) = (name.to_owned(), value.to_owned());
    AddressError::Value { name, value, expected: expected.to_owned() }
}

/// Whether this is `HOST:PORT`.
pub(super) fn has_port(node: &str) -> bool {
    node.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_the_address() {
        let address =
            "lease://gpu.example:5701?min_vram=1GiB&lease_secs=60&exclusive=device&wait=5";
        let parsed = Address::parse(address).unwrap();
        assert_eq!(parsed.node, "gpu.example:5701");
        assert_eq!((parsed.min_vram, parsed.lease_secs), (Some(1 << 30), Some(60)));
        assert_eq!(parsed.exclusivity, Some(Exclusivity::Device));
        assert_eq!(parsed.wait, Some(Duration::from_secs(5)));
        assert_eq!(Address::parse("lease://[::1]:5701/").unwrap().node, "[::1]:5701");
    }

    #[test]
    fn invalid_addresses_say_what_to_write() {
        for (address, advice) in [
            ("cuda:0", "lease://HOST:PORT"),
            ("lease://host", "lease://HOST:PORT"),
            ("lease://host:0", "lease://HOST:PORT"),
            ("lease://host:99999", "lease://HOST:PORT"),
            ("lease://h:1?vram=1", "are min_vram"),
            ("lease://h:1?min_vram=lots", "8GiB"),
            ("lease://h:1?lease_secs=1m", "seconds"),
            ("lease://h:1?exclusive=yes", "`device`"),
        ] {
            let message = Address::parse(address).unwrap_err().to_string();
            assert!(message.contains(advice), "{message}");
        }
    }
}
