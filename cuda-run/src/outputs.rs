//! Writes the output files: all of them, or none.
//!
//! Each file is first written to a temporary file in the same folder. When all are complete, they are renamed, so a
//! reader sees either the old file or the complete new one. The folders are checked before the kernel runs. Only if a
//! rename fails anyway, because a folder was removed in between, can some files be new and others old.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    path::{Path, PathBuf},
};

use command_line::{ArrayType, Failure, npy};
use tempfile::{Builder, NamedTempFile};

/// The path of an output file.
pub(crate) struct Destination {
    /// The path with symbolic links resolved, so that a link stays and its target is replaced.
    path: PathBuf,
    /// The permissions of the file that is replaced, if there is one.
    permissions: Option<Permissions>,
}

/// Complete temporary files, not yet renamed to their paths.
#[derive(Default)]
pub(crate) struct Staged(Vec<(NamedTempFile, PathBuf)>);

/// Checks before the launch that the paths are writable and distinct.
pub(crate) fn destinations<'a>(
    paths: impl IntoIterator<Item = &'a Path>,
) -> Result<Vec<Destination>, Failure> {
    let mut found: Vec<Destination> = Vec::new();
    for path in paths {
        let at = |failure: Failure| failure.at(path.display());
        let destination = Destination::find(path).map_err(at)?;
        if found.iter().any(|other| other.path == destination.path) {
            return Err(at(Failure::bad_input(
                "two outputs name this file; give each output its own path",
            )));
        }
        // Creating and removing a temporary file shows that the folder is writable.
        destination.temporary().map_err(|error| at(error.into()))?;
        found.push(destination);
    }
    Ok(found)
}

impl Destination {
    fn find(path: &Path) -> Result<Self, Failure> {
        match path.canonicalize() {
            Ok(path) => Self::existing(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::new(path),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks a file that exists. Only a writable regular file is replaced, never `/dev/null`.
    fn existing(path: PathBuf) -> Result<Self, Failure> {
        let metadata = fs::metadata(&path)?;
        if !metadata.is_file() {
            return Err(Failure::bad_input(
                "exists and is not a regular file; choose another output path",
            ));
        }
        OpenOptions::new().write(true).open(&path)?;
        Ok(Self { path, permissions: Some(metadata.permissions()) })
    }

    fn new(path: &Path) -> Result<Self, Failure> {
        let name = path
            .file_name()
            .ok_or_else(|| Failure::bad_input("the path does not end with a file name"))?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        Ok(Self { path: folder.canonicalize()?.join(name), permissions: None })
    }

    /// Creates a temporary file in the same folder, with the permissions of the old file or the default ones.
    fn temporary(&self) -> io::Result<NamedTempFile> {
        let mut builder = Builder::new();
        builder.prefix(".cuda-run-");
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder.tempfile_in(self.path.parent().unwrap_or(Path::new("/")))?;
        if let Some(permissions) = &self.permissions {
            file.as_file().set_permissions(permissions.clone())?;
        }
        Ok(file)
    }
}

impl Staged {
    /// Writes an array to a temporary file.
    pub(crate) fn add(
        &mut self,
        destination: Destination,
        array: &ArrayType,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        let staged = destination.temporary().and_then(|file| {
            npy::write(file.as_file(), array, bytes)?;
            Ok(file)
        });
        let at = destination.path.display();
        let file = staged.map_err(|error| Failure::from(error).at(at))?;
        self.0.push((file, destination.path));
        Ok(())
    }

    /// Renames every temporary file to its path.
    pub(crate) fn commit(self) -> Result<(), Failure> {
        for (file, path) in self.0 {
            let renamed: Result<File, _> = file.persist(&path);
            renamed.map_err(|error| Failure::from(error.error).at(path.display()))?;
        }
        Ok(())
    }
}
