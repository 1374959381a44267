//! Failures: a message on stderr and an exit status. The message is one line, or several if a module cannot be loaded.

use std::{
    fmt::Display,
    io::{self, Write},
    process::ExitCode,
};

use cuda_core::{Error, protocol::Status as NodeStatus};

/// The maximum length of a line on stderr, in characters. Longer lines are truncated.
const LONGEST_LINE: usize = 1000;

/// The maximum length of a device's load log, in characters. The log has one line for each unknown instruction.
const LONGEST_LOG: usize = 200_000;

/// The exit statuses other than 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The input cannot be used, or a file cannot be read or written.
    BadInput,
    /// The kernel faulted, or the device failed.
    Failed,
    /// The device does not exist, its driver is missing, or its node refuses or cannot be reached.
    Unavailable,
    /// A signal of this number ended the program.
    Signal(u8),
}

impl Status {
    fn code(self) -> u8 {
        match self {
            Status::BadInput => 2,
            Status::Failed => 3,
            Status::Unavailable => 4,
            // As shells have it.
            Status::Signal(number) => number.saturating_add(128),
        }
    }
}

/// An exit status and a message.
#[derive(Debug)]
pub struct Failure {
    status: Status,
    message: String,
    /// Whether the message is a device's load log.
    is_log: bool,
}

impl Failure {
    /// Creates a failure of the user's input.
    pub fn bad_input(message: impl Display) -> Self {
        Self { status: Status::BadInput, message: message.to_string(), is_log: false }
    }

    /// Creates a failure of the run on the device.
    pub fn failed(message: impl Display) -> Self {
        Self { status: Status::Failed, ..Self::bad_input(message) }
    }

    /// Prepends `place` to the message.
    pub fn at(mut self, place: impl Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Appends advice to the message.
    pub fn with_advice(mut self, advice: impl Display) -> Self {
        self.message = format!("{}; {advice}", self.message);
        self
    }

    /// Whether the device could not load the module.
    pub fn is_of_module(&self) -> bool {
        self.is_log
    }

    /// Creates a failure of a device or a node that is not available.
    pub fn unavailable(message: impl Display) -> Self {
        Self { status: Status::Unavailable, ..Self::bad_input(message) }
    }

    /// Creates a failure of a run that the signal of this number ended.
    pub fn signal(number: u8, message: impl Display) -> Self {
        Self { status: Status::Signal(number), ..Self::bad_input(message) }
    }

    /// Prints the failure after the name of the program, and returns the exit status.
    pub fn report(&self, program: &str) -> ExitCode {
        let text = if self.is_log {
            let lines = self.message.lines().map(|line| one_line(line, LONGEST_LINE));
            cut(lines.collect::<Vec<_>>().join("\n  "), LONGEST_LOG)
        } else {
            one_line(&self.message, LONGEST_LINE)
        };
        // If stderr is closed, the message is discarded.
        let _ = writeln!(io::stderr(), "{program}: {text}");
        ExitCode::from(self.status.code())
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
            Error::NoDevice { .. }
            | Error::NoDriver { .. }
            | Error::DriverUnusable { .. }
            | Error::Unreachable { .. }
            | Error::Disconnected { .. } => Status::Unavailable,
            Error::Remote { status, .. } => of_node(status),
            Error::InvalidPtx { .. }
            | Error::PtxTooNew { .. }
            | Error::LoadFailed { .. }
            | Error::NoSuchKernel { .. }
            | Error::NoSuchVariable { .. }
            | Error::Arguments { .. }
            | Error::InvalidLaunch { .. }
            | Error::OutOfRange { .. }
            | Error::Misuse(_) => Status::BadInput,
            _ => Status::Failed,
        };
        let is_log = matches!(
            error,
            Error::LoadFailed { .. } | Error::Remote { status: NodeStatus::LoadFailed, .. }
        );
        // `Error::Fault` adds advice for programs, which does not apply on the command line.
        let message = match error {
            Error::Fault(fault) => format!("the device faulted: {fault}"),
            error => error.to_string(),
        };
        Self { status, message, is_log }
    }
}

/// The exit status for the status of a node.
fn of_node(status: NodeStatus) -> Status {
    match status {
        NodeStatus::BadRequest | NodeStatus::LoadFailed => Status::BadInput,
        NodeStatus::LaunchFailed | NodeStatus::WriteFailed | NodeStatus::ReadFailed => {
            Status::Failed
        }
        _ => Status::Unavailable,
    }
}

/// Joins lines into one and truncates it to `longest` characters.
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
    use cuda_core::{Limit, Quantity};

    use super::*;

    #[test]
    fn joins_lines_and_removes_control_characters() {
        assert_eq!(
            one_line("ptxas fatal:\r\n\tline 1\n\n line 2\n", 99),
            "ptxas fatal: | line 1 | line 2"
        );
        assert_eq!(one_line("one line", 99), "one line");
        assert_eq!(one_line("a\u{1b}[31mb\u{2028}c", 99), "a | [31mb | c");
    }

    #[test]
    fn truncates_long_lines_at_character_boundaries() {
        let cut = one_line(&"é".repeat(LONGEST_LINE + 1), LONGEST_LINE);
        assert_eq!(cut, format!("{} ...", "é".repeat(LONGEST_LINE)));
        assert_eq!(one_line(&"é".repeat(LONGEST_LINE), LONGEST_LINE).chars().count(), LONGEST_LINE);
    }

    #[test]
    fn errors_map_to_exit_statuses() {
        let status = |error: Error| Failure::from(error).status;
        let no_device = Error::NoDevice { address: "tpu".into(), available: "`cpu`".into() };
        assert_eq!(status(no_device), Status::Unavailable);
        assert_eq!(status(Error::InvalidPtx { detail: String::new() }), Status::BadInput);
        let spares = Limit::AtMost(1).check("--spares", Quantity::Workers, 2).unwrap_err();
        assert_eq!(status(spares), Status::BadInput);
        assert_eq!(status(Error::OutOfHostMemory { requested: 1 }), Status::Failed);
        let of_node =
            |status| Error::Remote { address: "node".into(), status, detail: String::new() };
        assert_eq!(status(of_node(NodeStatus::LoadFailed)), Status::BadInput);
        assert_eq!(status(of_node(NodeStatus::LaunchFailed)), Status::Failed);
        assert_eq!(status(of_node(NodeStatus::CapacityExceeded)), Status::Unavailable);
    }
}
