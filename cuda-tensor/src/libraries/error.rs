//! `LibraryError`: the error of a call to one of NVIDIA's libraries.

use cuda_core::Error;

/// A library refused a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryError {
    library: &'static str,
    call: &'static str,
    status: String,
}

impl LibraryError {
    /// Returns the name of the library, such as `cuBLAS`.
    pub fn library(&self) -> &'static str {
        self.library
    }

    /// Returns the name of the function, such as `cublasGemmEx`.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// Returns the library's name for the status.
    pub fn status(&self) -> &str {
        &self.status
    }
}

impl std::fmt::Display for LibraryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: `{}` returned {}", self.library, self.call, self.status)
    }
}

impl std::error::Error for LibraryError {}

/// Converts a status of a library into an error.
pub(crate) fn failed(library: &'static str, call: &'static str) -> impl FnOnce(String) -> Error {
    move |status| Error::other(LibraryError { library, call, status })
}
