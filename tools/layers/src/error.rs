//! Errors of reading a crate.

use std::path::PathBuf;

/// A crate or a list that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder contains no `lib.rs`, no `main.rs` and no file in `bin/`.
    #[error("{}: no lib.rs, main.rs or bin/*.rs; give the folder that contains src/", .0.display())]
    NoRoot(PathBuf),
    /// A file cannot be read.
    #[error("{}: cannot read the file: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file is not Rust.
    #[error("{}:{line}: cannot parse the file: {message}", .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The line of the error, from 1.
        line: usize,
        /// The error of the parser.
        message: String,
    },
    /// A `mod name;` has no file.
    #[error("{}:{line}: no file for `mod {name};`; expected {}", .path.display(), .expected.display())]
    NoModule {
        /// The file with the declaration.
        path: PathBuf,
        /// The line of the declaration, from 1.
        line: usize,
        /// The name of the module.
        name: String,
        /// One of the paths at which the file is expected.
        expected: PathBuf,
    },
}
