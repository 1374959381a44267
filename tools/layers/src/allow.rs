//! The list of folders whose rings do not fail the check.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// The allowed folders, such as `cuda-core/src`. The list has one folder on each line. A `#` begins a comment.
#[derive(Debug, Default)]
pub struct Allowed {
    folders: Vec<PathBuf>,
}

impl Allowed {
    /// Reads a list. A file that does not exist is an empty list.
    ///
    /// # Errors
    /// The file cannot be read, or a line holds more than one folder.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.map_err(|source| Error::Read { path: path.to_owned(), source })?,
        };
        let mut folders = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let entry = line.split('#').next().unwrap_or_default();
            let mut words = entry.split_whitespace();
            folders.extend(words.next().map(PathBuf::from));
            if words.next().is_some() {
                return Err(Error::Allowed { path: path.to_owned(), line: i + 1 });
            }
        }
        Ok(Self { folders })
    }

    /// Whether the rings of this folder are allowed. Folders inside it have entries of their own.
    pub fn contains(&self, folder: &Path) -> bool {
        self.folders.iter().any(|allowed| allowed == folder)
    }

    /// The folders, in the order of the list.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(PathBuf::as_path)
    }
}
