//! The errors of the example.

use std::path::PathBuf;

/// An error of the data set, the weights, the device or the picture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A row of the data set is not 64 pixels and a digit.
    #[error("digits.csv, line {line}: not 64 numbers from 0 to 16 and a digit")]
    Row {
        /// The line in the file, from 1.
        line: usize,
    },
    /// A file of weights cannot be read.
    #[error("{file}: {source}")]
    Npy {
        /// The name of the file.
        file: &'static str,
        /// The cause.
        source: ndarray_npy::ReadNpyError,
    },
    /// The shapes of the layers do not match.
    #[error("the weights are not those of a network from 64 pixels to 10 classes")]
    Shapes,
    /// The device or an operation on it failed.
    #[error(transparent)]
    Device(#[from] cuda_async::Error),
    /// The picture cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Picture {
        /// The path of the picture.
        path: PathBuf,
        /// The cause.
        source: png::EncodingError,
    },
}
