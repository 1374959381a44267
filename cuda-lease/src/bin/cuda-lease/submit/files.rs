//! Reads files of bounded size.

use std::{fs::File, io::Read, path::Path};

use command_line::{ArrayType, Failure, npy};

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
