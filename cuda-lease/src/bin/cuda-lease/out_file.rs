//! Writes the files that the command line names.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use command_line::Failure;
use tempfile::NamedTempFile;

/// The mode of a file that only the user can read.
pub(crate) const PRIVATE: u32 = 0o600;

/// The mode of any other file, of which the umask is taken away.
pub(crate) const PUBLIC: u32 = 0o666;

/// The maximum number of symbolic links to a missing file.
const MAX_LINKS: usize = 40;

/// A file that is open for writing. A regular file is replaced when all is written, and a symbolic link to it stays.
/// Devices and pipes are written in place.
pub(crate) struct OutFile {
    /// The path on the command line.
    path: PathBuf,
    target: Target,
}

enum Target {
    /// A temporary file, and the path that it gets.
    Replaced(NamedTempFile, PathBuf),
    InPlace(File),
}

impl OutFile {
    /// Opens the file at `path`. A new regular file has this mode.
    pub(crate) fn open(path: &Path, mode: u32) -> Result<Self, Failure> {
        let target = Target::open(path, mode).map_err(|failure| failure.at(path.display()))?;
        Ok(Self { path: path.to_owned(), target })
    }

    /// Writes all of the file.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match self.target {
            Target::InPlace(mut file) => file.write_all(bytes).and_then(|()| file.flush()),
            Target::Replaced(mut file, path) => file
                .as_file_mut()
                .write_all(bytes)
                .and_then(|()| file.persist(path).map_err(|error| error.error))
                .map(drop),
        };
        written.map_err(|error| Failure::from(error).at(self.path.display()))
    }
}

impl Target {
    fn open(path: &Path, mode: u32) -> Result<Self, Failure> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => Err(Failure::bad_input("is a directory; name a file")),
            Ok(found) if found.is_file() && !is_descriptor(path) => {
                Self::replace(path.canonicalize()?, mode)
            }
            Ok(_) => Ok(Self::InPlace(OpenOptions::new().append(true).open(path)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Self::replace(follow(path), mode),
            Err(error) => Err(error.into()),
        }
    }

    fn replace(path: PathBuf, mode: u32) -> Result<Self, Failure> {
        let folder = folder(&path).to_owned();
        let unusable = |error: io::Error| {
            let place = format!("the folder {} cannot be used", folder.display());
            Failure::from(error).at(place)
        };
        fs::metadata(&folder).map_err(unusable)?;
        let file = tempfile::Builder::new()
            .prefix(".cuda-lease-")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(&folder);
        // The message of the error names the temporary file.
        let file = file.map_err(|error| unusable(error.kind().into()))?;
        Ok(Self::Replaced(file, path))
    }
}

/// Whether there is a regular file at `path` that [`OutFile`] replaces.
pub(crate) fn is_replaced(path: &Path) -> bool {
    path.is_file() && !is_descriptor(path)
}

/// Whether the path stands for an open file of this process, such as `/dev/stdout`.
fn is_descriptor(path: &Path) -> bool {
    let of_process = ["/proc", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"];
    of_process.iter().any(|prefix| path.starts_with(prefix))
}

/// The missing file to which the symbolic links at `path` lead.
fn follow(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        // Only a link can be read so.
        let Ok(target) = fs::read_link(&path) else { break };
        path = folder(&path).join(target);
    }
    path
}

fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbolic_link_stays_and_its_target_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for (link, target) in [("a", "old"), ("b", "new")] {
            std::os::unix::fs::symlink(target, file(link)).unwrap();
        }
        fs::write(file("old"), "1").unwrap();
        for (link, target) in [("a", "old"), ("b", "new")] {
            OutFile::open(&file(link), PRIVATE).unwrap().write(b"23").unwrap();
            assert!(file(link).symlink_metadata().unwrap().is_symlink());
            assert_eq!(fs::read(file(target)).unwrap(), b"23");
            assert_eq!(file(target).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn failure_names_the_path_and_no_temporary_file() {
        let failure = OutFile::open(Path::new("/nonexistent/x"), PUBLIC).err().unwrap();
        let message = format!("{failure:?}");
        let expected =
            "/nonexistent/x: the folder /nonexistent cannot be used: No such file or directory";
        assert!(message.contains(expected) && !message.contains(".cuda-lease-"), "{message}");
    }
}
