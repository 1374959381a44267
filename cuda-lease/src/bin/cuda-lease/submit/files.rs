//! Reads the files of a submit: the kernel's code, and other files of bounded size.

use std::{fs::File, io::Read, path::Path};

use command_line::{ArrayType, Failure, npy};
use cuda_core::protocol::{EntryInfo, entries};
use cuda_lease::Job;

use crate::options::SubmitArgs;

/// The maximum size of an image in bytes: that of a module of a node.
const MAX_IMAGE: u64 = 64 << 20;

/// The code of kernels.
pub(super) enum Image {
    /// A PTX text and its kernels.
    Ptx(String, Vec<EntryInfo>),
    /// A cubin or fatbin.
    Cubin(Vec<u8>),
}

impl Image {
    /// Reads the file that the command line names.
    pub(super) fn read(args: &SubmitArgs) -> Result<Self, Failure> {
        if let Some(path) = &args.cubin {
            return bytes(path, MAX_IMAGE).map(Self::Cubin);
        }
        // clap requires the one or the other.
        let path = args.ptx.clone().unwrap_or_default();
        let bytes = bytes(&path, MAX_IMAGE)?;
        let read = || {
            let text = String::from_utf8(bytes);
            let text =
                text.map_err(|_| Failure::bad_input("not UTF-8 text; expected a PTX file"))?;
            let kernels = entries(&text)?;
            Ok(Self::Ptx(text, kernels))
        };
        read().map_err(|failure: Failure| failure.at(path.display()))
    }

    /// The kernel of this name. `None` for a cubin, whose kernels only the node can list.
    pub(super) fn entry(&self, kernel: &str) -> Result<Option<&EntryInfo>, Failure> {
        let Self::Ptx(_, kernels) = self else { return Ok(None) };
        if let Some(found) = kernels.iter().find(|entry| entry.name == kernel) {
            return Ok(Some(found));
        }
        let names: Vec<_> = kernels.iter().map(|entry| entry.name.as_str()).collect();
        Err(Failure::bad_input(format_args!(
            "no kernel `{kernel}` in the PTX; its kernels are: {}",
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        )))
    }

    /// Starts the job of a kernel.
    pub(super) fn job(self, kernel: &str) -> Job {
        match self {
            Self::Ptx(text, _) => Job::new(kernel, text),
            Self::Cubin(bytes) => Job::from_cubin(kernel, bytes),
        }
    }
}

/// The contents of a file.
pub(super) struct Contents {
    /// The type of the array in an `.npy` file. `None` for any other file.
    pub(super) array: Option<ArrayType>,
    pub(super) bytes: Vec<u8>,
}

/// Reads the array of an `.npy` file, or all bytes of another file.
pub(super) fn read(path: &Path, limit: u64) -> Result<Contents, Failure> {
    if path.extension().is_none_or(|extension| extension != "npy") {
        return bytes(path, limit).map(|bytes| Contents { array: None, bytes });
    }
    let read = || {
        let (array, bytes) = npy::read(File::open(path)?)?;
        within(bytes.len() as u64, limit)?;
        Ok(Contents { array: Some(array), bytes })
    };
    read().map_err(|failure: Failure| failure.at(path.display()))
}

/// Reads all bytes of a file.
pub(super) fn bytes(path: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
        within(bytes.len() as u64, limit)?;
        Ok(bytes)
    };
    read().map_err(|failure: Failure| failure.at(path.display()))
}

fn within(bytes: u64, limit: u64) -> Result<(), Failure> {
    if bytes <= limit {
        return Ok(());
    }
    Err(Failure::bad_input(format_args!("has more bytes than the limit of {limit}; split it")))
}
