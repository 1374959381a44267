//! Folders that a hostile worker has written, and may still be writing.
//!
//! Such a worker can replace a folder by a link to one of another user between two calls. So each folder is opened from
//! the descriptor of the one that contains it, without following links, and each call on its entries names that
//! descriptor.

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::{
    fs::{
        AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, chmod, mkdirat, openat, renameat,
        statat, unlinkat,
    },
    io::Errno,
};

/// The maximum duration for which the end of a node waits for removals.
const END: Duration = Duration::from_millis(500);

/// The limits of a tree of files.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// The size of its files and folders in bytes.
    pub(super) bytes: u64,
    /// The number of its files and folders, with the outermost one.
    pub(super) entries: usize,
    /// The number of folders that a file or a folder is in.
    pub(super) depth: usize,
}

/// Whether the folder at `path` has only folders, and files that are nowhere else, within `limits`. Makes the folders
/// readable for the supervisor.
///
/// # Errors
/// The file system fails.
pub(super) fn is_plain_tree(path: &Path, limits: Limits) -> io::Result<bool> {
    let (parent, name) = split(path)?;
    Tree { limits, bytes: 0, entries: 1 }.is_plain(parent.as_fd(), name, 0)
}

/// The part of a tree that was read.
struct Tree {
    limits: Limits,
    bytes: u64,
    entries: usize,
}

impl Tree {
    fn is_plain(
        &mut self,
        parent: BorrowedFd<'_>,
        name: impl rustix::path::Arg + Copy,
        depth: usize,
    ) -> io::Result<bool> {
        let Some(folder) = open_folder(parent, name)? else { return Ok(false) };
        // Entries are counted as they are read: those of a hostile worker could fill the memory of the supervisor.
        for entry in entries(&folder)? {
            let entry = entry?;
            let found = statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
            self.entries += 1;
            self.bytes = self.bytes.saturating_add(found.st_size.try_into().unwrap_or(u64::MAX));
            let Limits { bytes, entries, depth: deepest } = self.limits;
            if self.bytes > bytes || self.entries > entries || depth >= deepest {
                return Ok(false);
            }
            let is_plain = match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile => found.st_nlink == 1,
                FileType::Directory => {
                    self.is_plain(folder.as_fd(), entry.file_name(), depth + 1)?
                }
                _ => false,
            };
            if !is_plain {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A thread that removes folders of workers that have ended. A hostile worker can fill one so that its removal takes
/// minutes, and many of them: nothing else waits for it.
pub(super) struct Remover {
    folders: Option<mpsc::Sender<PathBuf>>,
    /// Disconnected when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl Remover {
    /// Starts the thread, which calls `remove` for each folder, and drops it when all folders are removed.
    ///
    /// # Errors
    /// The system has no thread.
    pub(super) fn start(mut remove: impl FnMut(PathBuf) + Send + 'static) -> io::Result<Self> {
        let (folders, to_remove) = mpsc::channel();
        let (running, ended) = mpsc::channel();
        let work = move || {
            let _running = running;
            to_remove.into_iter().for_each(&mut remove);
            drop(remove);
        };
        thread::Builder::new().name("removals".into()).spawn(work)?;
        Ok(Self { folders: Some(folders), ended: ended.into() })
    }

    /// Removes a folder later.
    pub(super) fn remove(&self, folder: PathBuf) {
        // The thread runs until `folders` is dropped.
        _ = self.folders.as_ref().map(|folders| folders.send(folder));
    }
}

impl Drop for Remover {
    /// Waits until all folders are removed, at most for [`END`].
    fn drop(&mut self) {
        self.folders = None;
        if self.ended.get_mut().recv_timeout(END) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the folders of workers that have ended are not all removed yet");
        }
    }
}

/// Moves a file or a folder to `target`, which no worker reaches.
///
/// # Errors
/// The file system fails.
pub(super) fn move_away(path: &Path, target: &Path) -> io::Result<()> {
    let (parent, name) = split(path)?;
    // A folder that its owner may not write cannot be moved.
    open_folder(parent.as_fd(), name)?;
    Ok(renameat(parent, name, CWD, target)?)
}

/// Removes the file at `path`, or the folder with its contents, by way of a new folder `trash`. Folders inside of each
/// other move there, so that their depth, which a hostile worker chooses, takes neither stack nor descriptors nor long
/// paths.
///
/// # Errors
/// The file system fails. If a worker still writes, what it writes can remain.
pub(super) fn remove(path: &Path, trash: &Path) -> io::Result<()> {
    let (parent, name) = split(path)?;
    let (outer, trash_name) = split(trash)?;
    mkdirat(&outer, trash_name, Mode::RWXU)?;
    let trash = open_folder(outer.as_fd(), trash_name)?.ok_or(Errno::NOTDIR)?;
    let mut count = 0_u64;
    remove_or_move(parent.as_fd(), name, trash.as_fd(), &mut count)?;
    let mut number = 0;
    while number < count {
        number += 1;
        let name = number.to_string();
        let Some(folder) = open_folder(trash.as_fd(), &*name)? else {
            // A worker has replaced it before it was moved.
            unlinkat(&trash, &*name, AtFlags::empty())?;
            continue;
        };
        for entry in entries(&folder)? {
            remove_or_move(folder.as_fd(), entry?.file_name(), trash.as_fd(), &mut count)?;
        }
        unlinkat(&trash, &*name, AtFlags::REMOVEDIR)?;
    }
    Ok(unlinkat(outer, trash_name, AtFlags::REMOVEDIR)?)
}

/// Removes a file, or moves a folder to `trash` under the next number.
fn remove_or_move(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
    trash: BorrowedFd<'_>,
    count: &mut u64,
) -> io::Result<()> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        removed => return Ok(removed?),
    }
    // A folder that its owner may not write cannot be moved.
    open_folder(parent, name)?;
    *count += 1;
    Ok(renameat(parent, name, trash, &*count.to_string())?)
}

/// The entries of a folder.
fn entries(folder: &OwnedFd) -> io::Result<impl Iterator<Item = io::Result<DirEntry>>> {
    let entries = Dir::read_from(folder)?.map(|entry| Ok(entry?));
    let is_dots = |entry: &DirEntry| [c".", c".."].contains(&entry.file_name());
    Ok(entries.filter(move |entry| !entry.as_ref().is_ok_and(is_dots)))
}

/// Opens the folder `name` of `parent`, and lets its owner use it. `None` if it is something else, such as a link.
fn open_folder(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
) -> io::Result<Option<OwnedFd>> {
    let folder = OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Without `PATH`, a folder without rights does not open.
    let flags = folder | OFlags::NOFOLLOW | OFlags::PATH;
    let found = match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        found => found?,
    };
    // `fchmod` refuses such a descriptor. Its name in `/proc` is the folder itself, whatever has its place by now.
    chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::RWXU)?;
    Ok(Some(openat(&found, c".", folder | OFlags::RDONLY, Mode::empty())?))
}

/// Opens the folder that contains `path`, which no worker can replace, and returns the name in it.
fn split(path: &Path) -> io::Result<(OwnedFd, &[u8])> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
    Ok((openat(CWD, parent, flags, Mode::empty())?, name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use rustix::fs::{RenameFlags, renameat_with};

    use super::*;

    const EXCHANGE: RenameFlags = RenameFlags::EXCHANGE;

    #[test]
    fn nothing_waits_for_a_removal() {
        let (sender, removed) = mpsc::channel();
        let (release, blocked) = mpsc::channel::<()>();
        let remover = Remover::start(move |folder| {
            _ = blocked.recv();
            sender.send(folder).unwrap();
        });
        let remover = remover.unwrap();
        let folders = ["a", "b"].map(PathBuf::from);
        folders.iter().for_each(|folder| remover.remove(folder.clone()));
        drop(remover);
        assert!(removed.try_recv().is_err(), "a removal was awaited");
        drop(release);
        assert!(removed.into_iter().eq(folders));
    }

    #[test]
    fn tree_at_each_limit_is_plain_and_beyond_it_is_not() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        fs::write(root.path().join("a/file"), "12345").unwrap();
        let folder = fs::metadata(root.path().join("a")).unwrap().len();
        let exact = Limits { bytes: folder + 5, entries: 3, depth: 2 };
        assert!(is_plain_tree(root.path(), exact).unwrap());
        for beyond in [
            Limits { bytes: folder + 4, ..exact },
            Limits { entries: 2, ..exact },
            Limits { depth: 1, ..exact },
        ] {
            assert!(!is_plain_tree(root.path(), beyond).unwrap());
        }
    }

    /// A worker that a killed node has left exchanges its folder with a link, again and again, while the next node
    /// removes what the first has left.
    #[test]
    fn folders_behind_links_are_not_touched() {
        let root = tempfile::tempdir().unwrap();
        let foreign = root.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("file"), "").unwrap();
        rustix::fs::chmod(&foreign, Mode::from_raw_mode(0o755)).unwrap();
        let (left, link) = (root.path().join("left"), root.path().join("link"));
        let has_ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let exchange = |of: &OwnedFd| renameat_with(of, "0", CWD, &link, EXCHANGE);
                while !has_ended.load(Ordering::Relaxed) {
                    let folder = openat(CWD, &left, OFlags::PATH, Mode::empty());
                    while folder.as_ref().is_ok_and(|folder| exchange(folder).is_ok()) {}
                }
            });
            for number in 0..2_000 {
                let new = root.path().join("new");
                fs::create_dir_all(new.join("0/kernels")).unwrap();
                symlink(&foreign, &link).unwrap();
                fs::rename(new, &left).unwrap();
                _ = is_plain_tree(&left, Limits { bytes: u64::MAX, entries: 10, depth: 8 });
                _ = remove(&left, &root.path().join(format!("trash-{number}")));
                _ = fs::remove_dir_all(&left);
                // The link, or the folder that had its place.
                _ = fs::remove_dir_all(&link);
            }
            has_ended.store(true, Ordering::Relaxed);
        });
        assert!(foreign.join("file").exists());
        let mode = statat(CWD, &foreign, AtFlags::empty()).unwrap().st_mode;
        assert_eq!(mode & 0o777, 0o755);
    }
}
