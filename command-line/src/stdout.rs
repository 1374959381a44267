//! Prints to standard output, which the reader may close early.

use std::{
    fmt::Write as _,
    fs::{File, Metadata},
    io::{self, ErrorKind, Write},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
};

use crate::failure::Failure;

/// The control characters of a text with several lines.
pub const LINES: &[char] = &['\n', '\t'];

/// Prints `text`. A closed pipe is not a failure, as in `cuda-run .. --list | head -1`. Control characters other than
/// tabs and line breaks are escaped, because a terminal could act on them.
///
/// # Errors
/// A failure of bad input: standard output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    write(escaped(text, LINES).as_bytes())
}

/// Prints a text with a secret that is nowhere else, so a closed pipe is a failure too.
///
/// # Errors
/// A failure of bad input: standard output cannot be written.
pub fn print_secret(text: &str) -> Result<(), Failure> {
    try_write(escaped(text, LINES).as_bytes()).map_err(|error| Failure::from(error).at("stdout"))
}

/// Whether everything that is printed is lost: standard output is `/dev/null`, or was closed when the program began.
pub fn is_discarded() -> bool {
    let stdout = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let device =
        |metadata: Metadata| metadata.file_type().is_char_device().then(|| metadata.rdev());
    let device_of = |file: io::Result<Metadata>| file.ok().and_then(device);
    let device = device_of(stdout.and_then(|file| file.metadata()));
    // The standard library opens `/dev/null` in the place of a closed descriptor.
    device.is_some() && device == device_of(std::fs::metadata("/dev/null"))
}

/// Escapes the control characters of a text as JSON does, except those in `allowed`.
pub fn escaped(text: &str, allowed: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !allowed.contains(&c) {
            // Writing to a string cannot fail.
            _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// As [`print()`], for bytes.
///
/// # Errors
/// As [`print()`].
pub fn write(bytes: &[u8]) -> Result<(), Failure> {
    match try_write(bytes) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::from(error).at("stdout"))
        }
        _ => Ok(()),
    }
}

fn try_write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped("a\u{1b}[2J\u{9b}é\t\n", LINES), "a\\u001b[2J\\u009bé\t\n");
        assert_eq!(escaped("a\nb", &[]), "a\\u000ab");
    }
}
