//! Prints to standard output, which the reader may close early.

use std::io::{self, ErrorKind, Write};

use crate::failure::Failure;

/// Prints `text`. A closed pipe is not a failure, as in `cuda-run .. --list | head -1`.
///
/// # Errors
/// A failure of bad input: standard output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    write(text.as_bytes())
}

/// As [`print()`], for bytes.
///
/// # Errors
/// As [`print()`].
pub fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::from(error).at("stdout"))
        }
        _ => Ok(()),
    }
}
