//! What can go wrong here.

use std::path::PathBuf;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A row of the data set is not 64 pixels and a digit.
    #[error("digits.csv, line {line}: not 64 numbers from 0 to 16 and a digit")]
    Row {
        /// Counted from 1.
        line: usize,
    },
    /// A file of weights cannot be read.
    #[error("{file}: {source}")]
    Npy {
        /// Its name.
        file: &'static str,
        /// Why.
        source: ndarray_npy::ReadNpyError,
    },
    /// The layers do not fit each other.
    #[error("the weights are not those of a network from 64 pixels to 10 classes")]
    Shapes,
    /// The device, or an operation on it.
    #[error(transparent)]
    Device(#[from] cuda_async::Error),
    /// The picture cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Picture {
        /// Where to.
        path: PathBuf,
        /// Why.
        source: png::EncodingError,
    },
}
