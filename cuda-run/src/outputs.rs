//! Output files: all of them or none.
//!
//! A file is first written beside its place under a temporary name. Only when all are complete are they
//! renamed, so a reader sees an old file or a complete new one. Renaming is tried before the kernel runs; only if a folder
//! is removed in between can one file be new and the next one old.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    path::{Path, PathBuf},
};

use tempfile::{Builder, NamedTempFile};

use crate::{array_type::ArrayType, failure::Failure, npy};

/// The path of an output file, and the temporary file in its place until it is written.
pub(crate) struct Destination {
    /// Without symbolic links, so that a link stays and its target is replaced.
    path: PathBuf,
    permissions: Option<Permissions>,
}

/// Files that are complete but not in their places.
#[derive(Default)]
pub(crate) struct Staged(Vec<(NamedTempFile, PathBuf)>);

/// Checks, before anything runs, that files can be written at these paths and that no two are the same.
pub(crate) fn destinations<'a>(
    paths: impl IntoIterator<Item = &'a Path>,
) -> Result<Vec<Destination>, Failure> {
    let mut found: Vec<Destination> = Vec::new();
    for path in paths {
        let at = |failure: Failure| failure.at(path.display());
        let destination = Destination::find(path).map_err(at)?;
        if found.iter().any(|other| other.path == destination.path) {
            return Err(at(Failure::bad_input("two outputs go to this file")));
        }
        // Made and removed again: the place takes files.
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

    /// Only a regular file that can be written is replaced: never `/dev/null`.
    fn existing(path: PathBuf) -> Result<Self, Failure> {
        let metadata = fs::metadata(&path)?;
        if !metadata.is_file() {
            return Err(Failure::bad_input("it is there and not a regular file"));
        }
        OpenOptions::new().write(true).open(&path)?;
        Ok(Self { path, permissions: Some(metadata.permissions()) })
    }

    fn new(path: &Path) -> Result<Self, Failure> {
        let name = path.file_name().ok_or_else(|| Failure::bad_input("it does not name a file"))?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        Ok(Self { path: folder.canonicalize()?.join(name), permissions: None })
    }

    /// A temporary file in the same folder, with the permissions that the file had or would get.
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
    /// Writes a file beside its place.
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

    /// Puts every file in its place.
    pub(crate) fn commit(self) -> Result<(), Failure> {
        for (file, path) in self.0 {
            let renamed: Result<File, _> = file.persist(&path);
            renamed.map_err(|error| Failure::from(error.error).at(path.display()))?;
        }
        Ok(())
    }
}
