//! Writes the output to a file or to stdout.

use std::io::{self, IsTerminal};

use command_line::{Failure, stdout};

use crate::{
    format::Format,
    options::SubmitArgs,
    out_file::{OutFile, PUBLIC},
};

/// The place of the output.
pub(super) struct Output {
    format: Format,
    /// The file. `None` for stdout.
    file: Option<OutFile>,
}

impl Output {
    /// Checks before the run that the output can be written.
    pub(super) fn new(args: &SubmitArgs) -> Result<Self, Failure> {
        let format = args.format;
        let Some(path) = &args.out else {
            if format.is_binary() && io::stdout().is_terminal() {
                return Err(Failure::bad_input(
                    "the output is not text; write it to a file with --out",
                ));
            }
            return Ok(Self { format, file: None });
        };
        Ok(Self { format, file: Some(OutFile::open(path, PUBLIC)?) })
    }

    /// Writes all of the output.
    pub(super) fn write(self, bytes: &[u8]) -> Result<(), Failure> {
        let rendered = self.format.render(bytes)?;
        match self.file {
            Some(file) => file.write(&rendered),
            None => stdout::write(&rendered),
        }
    }
}
