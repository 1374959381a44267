//! How it ends when it does not end well: one line on stderr and an exit status.

use std::{
    fmt::Display,
    io::{self, Write},
    process::ExitCode,
};

use cuda_async::Error;

/// Characters of a line on stderr; a compiler's log may be longer, and is cut.
const LONGEST_LINE: usize = 1000;

/// What an exit status other than 0 means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// What was given cannot be used, or a file cannot be read or written.
    BadInput = 2,
    /// The kernel faulted, or the device could not do it.
    Failed = 3,
    /// There is no such device.
    NoDevice = 4,
}

/// An exit status and the reason.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    message: String,
}

impl Failure {
    /// What was given cannot be used.
    pub(crate) fn bad_input(message: impl Display) -> Self {
        Self { status: Status::BadInput, message: message.to_string() }
    }

    /// The same failure, with where it happened in front.
    pub(crate) fn at(mut self, place: impl Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Prints the line; gives the status to exit with.
    pub(crate) fn report(&self) -> ExitCode {
        // With stderr closed there is nobody left to tell.
        let _ = writeln!(io::stderr(), "cuda-run: {}", one_line(&self.message));
        ExitCode::from(self.status as u8)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let status = match error.kind() {
            io::ErrorKind::OutOfMemory => Status::Failed,
            _ => Status::BadInput,
        };
        Self { status, message: error.to_string() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::NoDevice { .. } | Error::NoDriver { .. } | Error::DriverUnusable { .. } => {
                Status::NoDevice
            }
            Error::InvalidPtx { .. }
            | Error::PtxTooNew { .. }
            | Error::LoadFailed { .. }
            | Error::NoSuchKernel { .. }
            | Error::Arguments { .. }
            | Error::InvalidLaunch { .. } => Status::BadInput,
            _ => Status::Failed,
        };
        // What a program could do about a fault is no help to who sits at a shell.
        let message = match error {
            Error::Fault(fault) => format!("the device faulted: {fault}"),
            error => error.to_string(),
        };
        Self { status, message }
    }
}

/// Folds lines into one, and cuts what is too long for a line.
fn one_line(text: &str) -> String {
    let is_break = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let lines = text.split(is_break).map(str::trim).filter(|line| !line.is_empty());
    let folded = lines.collect::<Vec<_>>().join(" | ");
    match folded.char_indices().nth(LONGEST_LINE) {
        Some((end, _)) => format!("{} ...", &folded[..end]),
        None => folded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_lines_and_drops_control_characters() {
        assert_eq!(
            one_line("ptxas fatal:\r\n\tline 1\n\n line 2\n"),
            "ptxas fatal: | line 1 | line 2"
        );
        assert_eq!(one_line("one line"), "one line");
        assert_eq!(one_line("a\u{1b}[31mb\u{2028}c"), "a | [31mb | c");
    }

    #[test]
    fn cuts_long_lines_between_characters() {
        let cut = one_line(&"é".repeat(LONGEST_LINE + 1));
        assert_eq!(cut, format!("{} ...", "é".repeat(LONGEST_LINE)));
        assert_eq!(one_line(&"é".repeat(LONGEST_LINE)).chars().count(), LONGEST_LINE);
    }

    #[test]
    fn knows_whose_fault_an_error_is() {
        let status = |error: Error| Failure::from(error).status;
        let no_device = Error::NoDevice { address: "tpu".into(), available: "`cpu`".into() };
        assert_eq!(status(no_device), Status::NoDevice);
        assert_eq!(status(Error::InvalidPtx { detail: String::new() }), Status::BadInput);
        assert_eq!(status(Error::OutOfHostMemory { requested: 1 }), Status::Failed);
    }
}
