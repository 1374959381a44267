//! The file with the kernel's code.

use command_line::Failure;
use cuda_core::protocol::{EntryInfo, entries};
use cuda_lease::Job;

use super::files;
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
            return files::bytes(path, MAX_IMAGE).map(Self::Cubin);
        }
        // clap requires the one or the other.
        let path = args.ptx.clone().unwrap_or_default();
        let bytes = files::bytes(&path, MAX_IMAGE)?;
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
