//! An allocated lease as JSON, in a file or on a pipe.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use command_line::Failure;
use cuda_lease::authority::Token;
use serde::{Deserialize, Serialize};

use crate::options::LeaseArgs;

/// The maximum size of a file of a lease in bytes.
const MAX_FILE: u64 = 64 << 10;

/// An allocated lease.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedLease {
    /// The node, `HOST:PORT`.
    pub(crate) node: String,
    /// The id.
    pub(crate) lease: u64,
    /// The token as text.
    pub(crate) token: String,
    /// The device of the node.
    pub(crate) device: String,
    /// The memory quota in bytes.
    pub(crate) memory: u64,
    /// The seconds until it expires, at the time of writing.
    pub(crate) expires_in_secs: u64,
}

impl SavedLease {
    fn read(path: &Path) -> Result<Self, Failure> {
        let mut text = String::new();
        if path == Path::new("-") {
            io::stdin().take(MAX_FILE).read_to_string(&mut text)?;
        } else {
            File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
        }
        serde_json::from_str(&text).map_err(|error| {
            Failure::bad_input(format_args!(
                "not the file of a lease: {error}; `cuda-lease alloc --out FILE` writes one"
            ))
        })
    }

    /// Replaces the file at `path` at once. Only the user can read it, because the token is a secret.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        // A temporary file has mode 0600.
        let written = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).and_then(
            |mut file| {
                writeln!(file, "{}", self.json())?;
                file.persist(path).map_err(|error| error.error)
            },
        );
        written.map(drop).map_err(|error| Failure::from(error).at(path.display()))
    }

    pub(crate) fn json(&self) -> String {
        // The fields are texts and numbers, which always have a form in JSON.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// A lease that the command line names.
pub(crate) struct Named {
    pub(crate) lease: u64,
    pub(crate) token: Bytes,
    /// The file, and its contents.
    pub(crate) file: Option<(PathBuf, SavedLease)>,
}

impl Named {
    /// Reads the file or the token.
    pub(crate) fn of(lease: Option<&Path>, token: Option<&str>) -> Result<Option<Self>, Failure> {
        if let Some(path) = lease {
            let at = |failure: Failure| failure.at(path.display());
            let saved = SavedLease::read(path).map_err(at)?;
            let token = parse(&saved.token).map_err(at)?;
            let lease = saved.lease;
            return Ok(Some(Self {
                lease,
                token: bytes(&token),
                file: Some((path.into(), saved)),
            }));
        }
        let Some(text) = token else { return Ok(None) };
        let token = parse(text).map_err(|failure| failure.at("--token"))?;
        let lease = token.unverified_claims().lease;
        Ok(Some(Self { lease, token: bytes(&token), file: None }))
    }

    /// The node of the lease, if the file names it.
    pub(crate) fn node(&self) -> Option<&str> {
        self.file.as_ref().map(|(_, saved)| saved.node.as_str())
    }

    /// As [`of`](Self::of), for a subcommand that requires a lease.
    pub(crate) fn required(args: &LeaseArgs) -> Result<Self, Failure> {
        let named = Self::of(args.lease.as_deref(), args.token.as_deref())?;
        named.ok_or_else(|| Failure::bad_input("no lease; state --lease FILE or --token TOKEN"))
    }
}

/// Returns the text form of a token from a node.
pub(crate) fn token_text(token: &[u8]) -> Result<String, Failure> {
    let token = Token::from_bytes(token);
    token.map(|token| token.to_text()).map_err(Failure::unavailable)
}

fn parse(text: &str) -> Result<Token, Failure> {
    text.parse().map_err(Failure::bad_input)
}

fn bytes(token: &Token) -> Bytes {
    Bytes::copy_from_slice(token.as_bytes())
}
