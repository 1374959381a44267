//! Limits per tenant, read from a TOML file.
//!
//! ```
//! use cuda_node::quotas::{Quotas, Tenant};
//!
//! let quotas = Quotas::parse(
//!     r#"
//!     [defaults]
//!     max_leases = 4
//!     max_vram = "8GiB"
//!
//!     [tenants.training]
//!     max_vram = "40GiB"
//!     max_priority = 10
//!     "#,
//! )?;
//! let training = quotas.of(&Tenant::new("training")?);
//! assert_eq!((training.max_leases, training.max_vram), (4, 40 << 30));
//! assert_eq!(quotas.of(&Tenant::new("anyone")?).max_vram, 8 << 30);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

use std::{collections::HashMap, fmt, fs, num::NonZeroU32, path::Path};

use cuda_core::Error;
use serde::{Deserialize, Deserializer, de};

pub use cuda_lease::authority::Tenant;
use cuda_lease::wire::{Exclusivity, parse_bytes};

/// The size limit of a file, in bytes. Some ten thousand tenants have as much.
const MAX_BYTES: u64 = 2 << 20;

/// The limits of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quota {
    /// The maximum number of leases and queued requests at a time.
    pub max_leases: u32,
    /// The maximum memory of all leases and queued requests together, in bytes.
    pub max_vram: u64,
    /// The maximum duration of one request or renewal, in seconds.
    pub max_lease_secs: u32,
    /// The highest priority of a request.
    pub max_priority: i32,
    /// The classes of leases that the tenant may request. A lease of one class keeps those of the others from its device,
    /// for as long as its client renews it.
    pub classes: Classes,
    /// The maximum number of stateless submits per second, and the largest burst. Those above it are refused. The lease
    /// table does not use it.
    pub submits_per_second: u32,
    /// The maximum number of connections at a time. The lease table does not use it.
    pub max_connections: u32,
    /// The maximum number of requests and connections per second, and the largest burst. Those above it wait. Stateless
    /// submits and the work of sessions do not count, but what the node refuses does. The lease table does not use it.
    pub requests_per_second: NonZeroU32,
}

/// 64 leases of all classes, 128 connections, 100 requests and 10,000 stateless submits per second, and the priority 0: a
/// higher one overtakes other tenants. Memory and durations have only the limits of the node.
impl Default for Quota {
    fn default() -> Self {
        Quota {
            max_leases: 64,
            max_vram: u64::MAX,
            max_lease_secs: u32::MAX,
            max_priority: 0,
            classes: Classes::default(),
            submits_per_second: 10_000,
            max_connections: 128,
            requests_per_second: NonZeroU32::new(100).unwrap_or(NonZeroU32::MIN),
        }
    }
}

/// Classes of leases. The default is all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classes([bool; Exclusivity::ALL.len()]);

impl Classes {
    /// These classes.
    pub fn of(classes: &[Exclusivity]) -> Self {
        Self(Exclusivity::ALL.map(|class| classes.contains(&class)))
    }

    /// The classes, in the order of [`Exclusivity::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Exclusivity> {
        let Self(has) = self;
        Exclusivity::ALL.into_iter().zip(has).filter_map(|(class, has)| has.then_some(class))
    }
}

impl Default for Classes {
    fn default() -> Self {
        Self::of(&Exclusivity::ALL)
    }
}

impl<'de> Deserialize<'de> for Classes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Classes, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        let classes: Option<Vec<_>> = names.iter().map(|name| Exclusivity::named(name)).collect();
        match classes {
            Some(classes) if !classes.is_empty() => Ok(Self::of(&classes)),
            _ => Err(de::Error::custom(
                "a list of at least one of \"shared\", \"session\" and \"device\" is expected",
            )),
        }
    }
}

/// The limits of all tenants. The default is [`Quota::default`] for each of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quotas {
    defaults: Quota,
    tenants: HashMap<Tenant, Quota>,
}

impl Quotas {
    /// The quotas of a TOML text. `[defaults]` holds for every tenant; `[tenants.NAME]` replaces single limits. The
    /// keys are the fields of [`Quota`]. `max_vram` is a number of bytes or a size such as `"8GiB"`, `classes` a list of names.
    ///
    /// # Errors
    /// The text is not TOML, has an unknown key, or a value is not valid.
    pub fn parse(text: &str) -> Result<Quotas, QuotaError> {
        let file: File = toml::from_str(text).map_err(|error| QuotaError::locate(text, &error))?;
        let defaults = file.defaults.over(Quota::default());
        let tenants = file.tenants.into_iter();
        let tenants = tenants.map(|(name, limits)| (name, limits.over(defaults)));
        Ok(Quotas { defaults, tenants: tenants.collect() })
    }

    /// Reads the quotas of a TOML file.
    ///
    /// # Errors
    /// [`Error::Host`] names the file that cannot be read or is not valid.
    pub fn read(path: &Path) -> cuda_core::Result<Quotas> {
        let what = || format!("failed to read the quotas in {}", path.display());
        let refused = |cause: String| Error::host(what(), &cause);
        // To open a FIFO would block until a process writes to it.
        let metadata = path.metadata().map_err(|error| Error::host(what(), &error))?;
        if !metadata.is_file() {
            return Err(refused("it is not a regular file; check the path".into()));
        }
        if metadata.len() > MAX_BYTES {
            return Err(refused(format!("it has more than {MAX_BYTES} bytes; check the path")));
        }
        let text = fs::read_to_string(path).map_err(|error| Error::host(what(), &error))?;
        Quotas::parse(&text).map_err(|error| Error::host(what(), &error))
    }

    /// The limits of this tenant.
    pub fn of(&self, tenant: &Tenant) -> Quota {
        self.tenants.get(tenant).copied().unwrap_or(self.defaults)
    }

    /// The tenants that have limits of their own.
    pub fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.tenants.keys()
    }

    /// The same quotas with these limits for this tenant.
    #[must_use]
    pub fn with(mut self, tenant: Tenant, quota: Quota) -> Quotas {
        self.tenants.insert(tenant, quota);
        self
    }
}

/// The quota file is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("quota file, line {line}, {}: {message}", if key.is_empty() { "no key".into() } else { format!("key {key:?}") })]
#[non_exhaustive]
pub struct QuotaError {
    /// The line of the error, from 1.
    pub line: usize,
    /// The key with its table, for example `tenants.training.max_vram`. Empty if the error is not about a key.
    pub key: String,
    /// The error and the expectation.
    pub message: String,
}

impl QuotaError {
    /// Finds the line and the key of the error in the text.
    fn locate(text: &str, error: &toml::de::Error) -> QuotaError {
        let at = error.span().map_or(0, |span| span.start);
        let line = text.bytes().take(at).filter(|&byte| byte == b'\n').count();
        let mut table = "";
        let mut key = "";
        for text in text.lines().take(line + 1).map(str::trim) {
            key = "";
            if let Some(header) = text.strip_prefix('[') {
                table = header.split(']').next().unwrap_or_default().trim();
            } else if let Some((name, _)) = text.split_once('=') {
                key = name.trim();
            }
        }
        let separator = if table.is_empty() || key.is_empty() { "" } else { "." };
        let message = error.message().trim().to_string();
        QuotaError { line: line + 1, key: format!("{table}{separator}{key}"), message }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    defaults: Limits,
    #[serde(default)]
    tenants: HashMap<Tenant, Limits>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Limits {
    max_leases: Option<u32>,
    max_vram: Option<Bytes>,
    max_lease_secs: Option<u32>,
    max_priority: Option<i32>,
    classes: Option<Classes>,
    submits_per_second: Option<u32>,
    max_connections: Option<u32>,
    requests_per_second: Option<NonZeroU32>,
}

impl Limits {
    /// The limits of `base`, with the limits that the file states in their place.
    fn over(&self, base: Quota) -> Quota {
        Quota {
            max_leases: self.max_leases.unwrap_or(base.max_leases),
            max_vram: self.max_vram.as_ref().map_or(base.max_vram, |bytes| bytes.0),
            max_lease_secs: self.max_lease_secs.unwrap_or(base.max_lease_secs),
            max_priority: self.max_priority.unwrap_or(base.max_priority),
            classes: self.classes.unwrap_or(base.classes),
            submits_per_second: self.submits_per_second.unwrap_or(base.submits_per_second),
            max_connections: self.max_connections.unwrap_or(base.max_connections),
            requests_per_second: self.requests_per_second.unwrap_or(base.requests_per_second),
        }
    }
}

/// A size in bytes: an integer, or text such as `"8GiB"`.
struct Bytes(u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes or a size such as \"8GiB\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                parse_bytes(text).map(Bytes).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Bytes, E> {
                Ok(Bytes(bytes))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Bytes, E> {
                let positive = u64::try_from(bytes).map(Bytes);
                positive.map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> QuotaError {
        Quotas::parse(text).unwrap_err()
    }

    #[test]
    fn file_that_is_too_large_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 30).unwrap();
        let error = Quotas::read(file.path()).unwrap_err().to_string();
        assert!(error.contains("more than 2097152 bytes"), "{error}");
    }

    #[test]
    fn an_empty_file_has_the_default_limits() {
        let quotas = Quotas::parse("").unwrap();
        assert_eq!(quotas, Quotas::default());
        assert_eq!(quotas.of(&Tenant::new("a").unwrap()), Quota::default());
    }

    #[test]
    fn a_tenant_overrides_single_defaults() {
        let quotas = Quotas::parse(
            "[defaults]\nmax_leases = 2\nmax_lease_secs = 60\nsubmits_per_second = 5\n\
             [tenants.a]\nmax_leases = 3\nmax_vram = 1000\nmax_priority = -1\n",
        )
        .unwrap();
        let a = quotas.of(&Tenant::new("a").unwrap());
        assert_eq!((a.max_leases, a.max_vram, a.max_lease_secs), (3, 1000, 60));
        assert_eq!((a.max_priority, a.submits_per_second), (-1, 5));
        assert_eq!(quotas.of(&Tenant::new("b").unwrap()).max_leases, 2);
    }

    #[test]
    fn classes_are_a_list_of_names() {
        let text = "[defaults]\nclasses = [\"shared\"]\n[tenants.a]\nclasses = [\"device\", \"session\"]\n";
        let quotas = Quotas::parse(text).unwrap();
        let of = |name| quotas.of(&Tenant::new(name).unwrap()).classes.iter().collect::<Vec<_>>();
        assert_eq!(of("a"), [Exclusivity::Session, Exclusivity::Device]);
        assert_eq!(of("b"), [Exclusivity::Shared]);
        for text in ["[defaults]\nclasses = []\n", "[defaults]\nclasses = [\"Device\"]\n"] {
            let refused = error(text);
            assert_eq!((refused.line, &*refused.key), (2, "defaults.classes"));
            assert!(refused.message.contains("at least one of \"shared\""), "{refused}");
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = error("[defaults]\nmax_leases = 2\nmax_lease = 3\n");
        assert_eq!((error.line, error.key.as_str()), (3, "defaults.max_lease"));
        assert!(error.message.contains("unknown field `max_lease`"), "{error}");
    }

    #[test]
    fn a_bad_size_is_named_with_its_line_and_tenant() {
        let error = error("[tenants.a]\n\nmax_vram = \"8G\"\n");
        assert_eq!((error.line, error.key.as_str()), (3, "tenants.a.max_vram"));
        assert!(error.to_string().contains("unknown unit \"G\""), "{error}");
    }

    #[test]
    fn values_of_the_wrong_type_or_sign_are_errors() {
        for (line, key) in [
            ("max_leases = \"many\"", "max_leases"),
            ("max_leases = -1", "max_leases"),
            ("max_vram = -1", "max_vram"),
            ("max_vram = 1.5", "max_vram"),
            ("requests_per_second = 0", "requests_per_second"),
            ("max_lease_secs = 5000000000", "max_lease_secs"),
        ] {
            let error = error(&format!("[defaults]\n{line}\n"));
            assert_eq!((error.line, error.key), (2, format!("defaults.{key}")), "{line}");
        }
    }

    #[test]
    fn text_that_is_not_toml_is_an_error() {
        assert_eq!(error("[defaults\n").line, 1);
        assert_eq!(error("limits = 3\n").key, "limits");
    }

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for path in [Path::new("/dev/null"), &fifo] {
            let error = Quotas::read(path).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
            assert!(error.contains(path.to_str().unwrap()), "{error}");
        }
    }
}
