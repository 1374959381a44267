//! Failures: one line on stderr (more for a module that cannot be loaded) and an exit status.

use std::{
    fmt::Display,
    io::{self, Write},
    process::ExitCode,
};

use cuda_async::Error;

/// The most characters of a line on stderr; longer lines are cut.
const LONGEST_LINE: usize = 1000;

/// The same for a device's report about a module that it cannot run, which has one line for each instruction that it does
/// not know.
const LONGEST_LOG: usize = 200_000;

/// The exit statuses other than 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// The input cannot be used, or a file cannot be read or written.
    BadInput = 2,
    /// The kernel faulted, or the device failed.
    Failed = 3,
    /// There is no such device.
    NoDevice = 4,
}

/// An exit status and the reason.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    message: String,
    /// Whether the message is a device's report about a module.
    is_log: bool,
}

impl Failure {
    /// The input cannot be used.
    pub(crate) fn bad_input(message: impl Display) -> Self {
        Self { status: Status::BadInput, message: message.to_string(), is_log: false }
    }

    /// The run failed on the device.
    pub(crate) fn failed(message: impl Display) -> Self {
        Self { status: Status::Failed, ..Self::bad_input(message) }
    }

    /// The same failure, with where it happened in front.
    pub(crate) fn at(mut self, place: impl Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The device cannot load the module.
    pub(crate) fn is_of_module(&self) -> bool {
        self.is_log
    }

    /// Prints the failure and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        let text = if self.is_log {
            let lines = self.message.lines().map(|line| one_line(line, LONGEST_LINE));
            cut(lines.collect::<Vec<_>>().join("\n  "), LONGEST_LOG)
        } else {
            one_line(&self.message, LONGEST_LINE)
        };
        // With stderr closed the message is lost.
        let _ = writeln!(io::stderr(), "cuda-run: {text}");
        ExitCode::from(self.status as u8)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let status = match error.kind() {
            io::ErrorKind::OutOfMemory => Status::Failed,
            _ => Status::BadInput,
        };
        Self { status, message: error.to_string(), is_log: false }
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
        let is_log = matches!(error, Error::LoadFailed { .. });
        // The advice of a fault is for programs and does not help a user at a shell.
        let message = match error {
            Error::Fault(fault) => format!("the device faulted: {fault}"),
            error => error.to_string(),
        };
        Self { status, message, is_log }
    }
}

/// Folds lines into one and cuts it to the longest length.
fn one_line(text: &str, longest: usize) -> String {
    let is_break = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let lines = text.split(is_break).map(str::trim).filter(|line| !line.is_empty());
    cut(lines.collect::<Vec<_>>().join(" | "), longest)
}

fn cut(text: String, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_lines_and_drops_control_characters() {
        assert_eq!(
            one_line("ptxas fatal:\r\n\tline 1\n\n line 2\n", 99),
            "ptxas fatal: | line 1 | line 2"
        );
        assert_eq!(one_line("one line", 99), "one line");
        assert_eq!(one_line("a\u{1b}[31mb\u{2028}c", 99), "a | [31mb | c");
    }

    #[test]
    fn cuts_long_lines_between_characters() {
        let cut = one_line(&"é".repeat(LONGEST_LINE + 1), LONGEST_LINE);
        assert_eq!(cut, format!("{} ...", "é".repeat(LONGEST_LINE)));
        assert_eq!(one_line(&"é".repeat(LONGEST_LINE), LONGEST_LINE).chars().count(), LONGEST_LINE);
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
