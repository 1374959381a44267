//! The audit log: one line of JSON for each decision about a lease.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use serde::Serialize;

/// A decision about a lease. Fields that do not apply are left out.
#[derive(Debug, Default, Serialize)]
pub(super) struct Entry<'a> {
    /// `granted`, `refused`, `renewed`, `freed`, `ending`, `ended`, `fenced`, `unfenced` or `revoked`.
    pub(super) event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<&'a str>,
    /// The quota in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<u64>,
    /// The reason of a refusal or of an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    /// Milliseconds since 1970, by the clock of the machine.
    time_ms: u64,
    #[serde(flatten)]
    entry: &'a Entry<'a>,
}

/// The audit log of a node, or none.
#[derive(Default)]
pub(super) struct Audit(Option<Mutex<File>>);

impl Audit {
    /// Appends to the file at `path`.
    pub(super) fn append_to(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Some(Mutex::new(file))))
    }

    /// Writes one line.
    pub(super) fn write(&self, entry: &Entry<'_>) {
        let Some(file) = &self.0 else { return };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = since.as_millis().try_into().unwrap_or(u64::MAX);
        let written = serde_json::to_string(&Line { time_ms, entry })
            .map_err(io::Error::other)
            .and_then(|line| writeln!(file.lock(), "{line}"));
        if let Err(error) = written {
            tracing::error!(%error, "the audit log cannot be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_decision_is_one_line_of_json() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let audit = Audit::append_to(file.path()).unwrap();
        let reason = Some("it says \"no\"\nand more".to_owned());
        audit.write(&Entry { event: "refused", tenant: Some("alice"), reason, ..Entry::default() });
        audit.write(&Entry { event: "ended", lease: Some(7), ..Entry::default() });
        let text = std::fs::read_to_string(file.path()).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["reason"], "it says \"no\"\nand more");
        assert_eq!((&lines[1]["lease"], lines[1].get("tenant")), (&7.into(), None));
        assert!(lines[1]["time_ms"].as_u64() > Some(1_700_000_000_000));
    }
}
