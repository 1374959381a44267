//! Printing, for readers that may leave early.

use std::io::{self, ErrorKind, Write};

use crate::failure::Failure;

/// Prints `text`. A reader that has gone (`cuda-run .. --list | head -1`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::from(error).at("stdout"))
        }
        _ => Ok(()),
    }
}
