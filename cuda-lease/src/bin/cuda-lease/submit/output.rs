//! Writes the output to a file or to stdout.

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use command_line::{Failure, stdout};
use tempfile::NamedTempFile;

use crate::{format::Format, options::SubmitArgs};

/// The place of the output.
pub(super) struct Output {
    format: Format,
    /// The file, and the temporary file beside it that will replace it. `None` for stdout.
    file: Option<(NamedTempFile, PathBuf)>,
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
        if path.is_dir() {
            return Err(Failure::bad_input("is a directory; name a file").at(path.display()));
        }
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let file = tempfile::Builder::new()
            .prefix(".cuda-lease-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .tempfile_in(folder.unwrap_or(Path::new(".")));
        let file = file.map_err(|error| Failure::from(error).at(path.display()))?;
        Ok(Self { format, file: Some((file, path.clone())) })
    }

    /// Writes all of the output. A file is replaced at once.
    pub(super) fn write(self, bytes: &[u8]) -> Result<(), Failure> {
        let rendered = self.format.render(bytes)?;
        let Some((mut file, path)) = self.file else { return stdout::write(&rendered) };
        let written = file
            .write_all(&rendered)
            .and_then(|()| file.persist(&path).map_err(|error| error.error));
        written.map(drop).map_err(|error| Failure::from(error).at(path.display()))
    }
}
