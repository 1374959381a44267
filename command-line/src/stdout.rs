//! Prints to standard output, which the reader may close early.

use std::{
    fmt::Write as _,
    io::{self, ErrorKind, Write},
};

use crate::failure::Failure;

/// Prints `text`. A closed pipe is not a failure, as in `cuda-run .. --list | head -1`. Control characters other than
/// tabs and line breaks are escaped, because a terminal could act on them.
///
/// # Errors
/// A failure of bad input: standard output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    write(escaped(text, &['\n', '\t']).as_bytes())
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
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::from(error).at("stdout"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped("a\u{1b}[2J\u{9b}é\t\n", &['\n', '\t']), "a\\u001b[2J\\u009bé\t\n");
        assert_eq!(escaped("a\nb", &[]), "a\\u000ab");
    }
}
