//! An allocated lease as JSON, in a file or on a pipe.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use command_line::Failure;
use cuda_lease::authority::Token;
use serde::{Deserialize, Serialize};

use crate::{
    options::{LeaseArgs, NodeArgs},
    out_file::{OutFile, PRIVATE},
};

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
    /// The certificates of the connection, which the options of the same names replace.
    #[serde(flatten)]
    pub(crate) certificates: Certificates,
}

/// The certificates with which a lease was allocated.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Certificates {
    /// The absolute path of the authority that signs the node's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<String>,
    /// The absolute path of the client's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cert: Option<String>,
    /// The absolute path of its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// The name in the node's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server_name: Option<String>,
}

impl Certificates {
    /// The certificates of the command line. A path that is not UTF-8 has no form in JSON and is left out.
    pub(crate) fn of(node: &NodeArgs) -> Self {
        let absolute = |path: &Option<PathBuf>| {
            let path = std::path::absolute(path.as_ref()?).ok()?;
            path.into_os_string().into_string().ok()
        };
        Self {
            ca: absolute(&node.ca),
            cert: absolute(&node.cert),
            key: absolute(&node.key),
            server_name: node.server_name.clone(),
        }
    }
}

impl SavedLease {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
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

    /// Opens the file of a lease. Only the user can read it, because the token is a secret.
    pub(crate) fn open(path: &Path) -> Result<OutFile, Failure> {
        OutFile::open(path, PRIVATE)
    }

    /// Writes the file of a lease.
    pub(crate) fn write(&self, file: OutFile) -> Result<(), Failure> {
        file.write(format!("{}\n", self.json()).as_bytes())
    }

    /// Whether the time of the lease was over by now, as its file at `path` has it.
    pub(crate) fn is_over(&self, path: &Path) -> bool {
        let written = path.metadata().and_then(|metadata| metadata.modified()).ok();
        let age = written.and_then(|written| written.elapsed().ok());
        age.is_some_and(|age| age.as_secs() > self.expires_in_secs)
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

    /// The node and the certificates of the lease. The options of the command line replace those in the file.
    pub(crate) fn node(&self, args: &NodeArgs) -> NodeArgs {
        let mut node = args.clone();
        let Some((_, SavedLease { node: address, certificates, .. })) = &self.file else {
            return node;
        };
        node.node.get_or_insert_with(|| address.clone());
        if args.ca.is_none() && args.cert.is_none() && args.key.is_none() {
            let path = |text: &Option<String>| text.as_ref().map(PathBuf::from);
            let Certificates { ca, cert, key, .. } = certificates;
            (node.ca, node.cert, node.key) = (path(ca), path(cert), path(key));
        }
        node.server_name = node.server_name.or_else(|| certificates.server_name.clone());
        node
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
