//! `Options`: the options of the compiler.

use std::path::{Path, PathBuf};

/// The virtual architecture that is the default: the oldest one that CUDA 12 and CUDA 13 both accept. Its PTX runs on
/// every GPU since Turing, and on the CPU device.
pub const DEFAULT_ARCHITECTURE: &str = "compute_75";

/// The options of a compilation. The default is PTX for [`DEFAULT_ARCHITECTURE`] and the compiler's own defaults.
///
/// ```
/// let options = cuda_nvrtc::Options::new().architecture("compute_80").define("TILE", "16").flag("--fmad=false");
/// assert_eq!(options.flags(), ["--gpu-architecture=compute_80", "--define-macro=TILE=16", "--fmad=false"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Options {
    flags: Vec<String>,
    folders: Vec<PathBuf>,
}

impl Options {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the virtual architecture, such as `compute_80`. The PTX runs on this generation of GPUs and on later ones.
    pub fn architecture(self, name: &str) -> Self {
        self.flag(&format!("--gpu-architecture={name}"))
    }

    /// Defines a macro, as `#define name value`.
    pub fn define(self, name: &str, value: &str) -> Self {
        self.flag(&format!("--define-macro={name}={value}"))
    }

    /// Adds a folder in which `#include` looks after the folder of the source.
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folders.push(folder.into());
        self
    }

    /// Adds an option as NVRTC takes it, such as `--fmad=false` or `--generate-line-info`.
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// Returns the options of NVRTC, with an architecture, and without the folders of headers.
    pub fn flags(&self) -> Vec<String> {
        let given = self.flags.iter().any(|flag| is_architecture(flag));
        let default = (!given).then(|| format!("--gpu-architecture={DEFAULT_ARCHITECTURE}"));
        default.into_iter().chain(self.flags.iter().cloned()).collect()
    }

    /// Returns the folders of headers.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(PathBuf::as_path)
    }
}

/// Whether an option selects the architecture.
fn is_architecture(flag: &str) -> bool {
    ["--gpu-architecture", "-arch"].iter().any(|name| flag.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architecture_is_given_once() {
        let default = format!("--gpu-architecture={DEFAULT_ARCHITECTURE}");
        assert_eq!(Options::new().flags(), [default]);
        assert_eq!(Options::new().flag("-arch=compute_90").flags(), ["-arch=compute_90"]);
    }
}
