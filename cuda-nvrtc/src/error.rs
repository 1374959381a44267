//! Errors.

use std::path::PathBuf;

/// The result of every call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The cause of a failure. The message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No NVRTC library was found.
    #[error(
        "NVRTC is not installed ({searched}); install a CUDA toolkit, or run \
         `pip install nvidia-cuda-nvrtc-cu12==12.4.127`, and if the library is in an unusual folder, set `CUDA_NVRTC` to it"
    )]
    NotFound {
        /// The places that were searched, in words.
        searched: String,
    },
    /// A library was found that cannot be used.
    #[error(
        "NVRTC at `{library}` cannot be used: {detail}; install another version, or set `CUDA_NVRTC`"
    )]
    Unusable {
        /// The path or the name of the library.
        library: String,
        /// The reason.
        detail: String,
    },
    /// No usable NVRTC was found, so the source was not compiled.
    #[error("`{source_name}` cannot be compiled: {cause}")]
    NoCompiler {
        /// The name of the source.
        source_name: String,
        /// [`Error::NotFound`] or [`Error::Unusable`].
        cause: Box<Error>,
    },
    /// The source has mistakes.
    #[error("`{source_name}` does not compile:\n{log}")]
    Compile {
        /// The name of the source.
        source_name: String,
        /// The compiler's messages, with the lines of the source.
        log: String,
    },
    /// A call of NVRTC failed, but not because of a mistake in the source.
    #[error("NVRTC cannot compile `{source_name}`: {call} failed: {status}")]
    Call {
        /// The name of the source.
        source_name: String,
        /// The function of NVRTC.
        call: &'static str,
        /// The name of the status, or the reason.
        status: String,
    },
    /// A file cannot be read or written.
    #[error("`{}` cannot be {action}: {detail}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// `read` or `written`.
        action: &'static str,
        /// The message of the operating system.
        detail: String,
    },
    /// Two headers are included under one name.
    #[error(
        "`{source_name}` includes two files as \"{name}\": `{}` and `{}`; rename one of them",
        .first.display(),
        .second.display()
    )]
    SameHeaderName {
        /// The name of the source.
        source_name: String,
        /// The name in the `#include`.
        name: String,
        /// The file that was found first.
        first: PathBuf,
        /// The other file.
        second: PathBuf,
    },
    /// There is no NVRTC, and the PTX beside the source was made from another source or with other options.
    #[error(
        "`{}` was not made from this `{source_name}` ({detail}); make it again with `cuda-nvrtc {source_name}` where NVRTC \
         is installed, or install NVRTC here: `pip install nvidia-cuda-nvrtc-cu12==12.4.127`",
        .ptx.display()
    )]
    Stale {
        /// The PTX file.
        ptx: PathBuf,
        /// The name of the source.
        source_name: String,
        /// The difference.
        detail: &'static str,
    },
    /// A text holds a NUL byte, which a C string cannot hold.
    #[error("{what} holds a NUL byte; remove it")]
    Nul {
        /// The text.
        what: String,
    },
}

impl Error {
    pub(crate) fn read(path: impl Into<PathBuf>, error: &std::io::Error) -> Self {
        Error::File { path: path.into(), action: "read", detail: error.to_string() }
    }

    pub(crate) fn written(path: impl Into<PathBuf>, error: &std::io::Error) -> Self {
        Error::File { path: path.into(), action: "written", detail: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_that_cannot_be_compiled_is_named() {
        let cause = Box::new(Error::NotFound { searched: "nowhere".into() });
        let error = Error::NoCompiler { source_name: "k.cu".into(), cause };
        let text = error.to_string();
        assert!(text.starts_with("`k.cu` cannot be compiled: NVRTC is not installed"), "{text}");
    }
}
