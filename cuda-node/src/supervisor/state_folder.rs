//! The folder with the state of a node that the next one needs: its key, its leases with their workers, and its fences.
//!
//! Each lease is a file in `leases`, its record. The node writes it before it answers a request for the lease, or for its
//! renewal. It moves the file to `ended` before it answers a request that ends the lease, and removes it when the worker
//! has ended. A new file is complete and on the disk before it takes the place of the old one, so a node that is killed
//! and a machine that loses power leave the old or the new one.
//!
//! Records and fences are of use until the machine starts again, because workers do not last longer. The boot id tells
//! one run of the machine from the next. The key and the ids of leases last longer.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use cuda_lease::authority::Fingerprint;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::{leases::KeptLease, process::WorkerRecord, worker::PROTOCOL};

/// The time in which the folder of a node that was killed is free.
const HANDOVER: Duration = Duration::from_secs(2);

/// The names of files that are not complete begin with this.
const INCOMPLETE: &str = "new-";

/// The ids of leases that are reserved at a time.
const IDS: u64 = 1000;

/// The limit of ids. No node comes near it, and none overflows after it.
const LAST_ID: u64 = u64::MAX / 2;

/// The file with the id of this run of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The state of a node on disk.
pub(super) struct StateFolder {
    root: PathBuf,
    /// Ids of leases below this one may be in use, also by tokens of leases that have ended. As on disk.
    reserved: u64,
    /// Held by the node that uses the folder.
    _lock: File,
}

/// A lease with its worker.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaseRecord {
    pub(super) lease: KeptLease,
    pub(super) worker: WorkerRecord,
    /// The version of the worker's messages, from 1 on.
    #[serde(default)]
    pub(super) protocol: u32,
    pub(super) is_detached: bool,
    pub(super) is_confirmed: bool,
    owner: Option<[u8; 32]>,
    /// The epoch of its session, if it has one and takes turns with others: work of it may be in flight.
    pub(super) epoch: Option<u32>,
    /// The time of the record, by the clock of the machine since its start.
    at: Duration,
}

impl LeaseRecord {
    pub(super) fn new(
        lease: KeptLease,
        worker: WorkerRecord,
        (is_detached, is_confirmed): (bool, bool),
        owner: Option<Fingerprint>,
        epoch: Option<u32>,
    ) -> Self {
        let (protocol, at) = (PROTOCOL, since_boot());
        let owner = owner.map(|owner| *owner.as_bytes());
        Self { lease, worker, protocol, is_detached, is_confirmed, owner, epoch, at }
    }

    /// The key of the client that acquired or last renewed the lease.
    pub(super) fn owner(&self) -> Option<Fingerprint> {
        self.owner.map(Fingerprint::from_bytes)
    }

    /// The time since the record was written.
    pub(super) fn elapsed(&self) -> Duration {
        since_boot().saturating_sub(self.at)
    }
}

fn since_boot() -> Duration {
    // This clock goes on while the machine sleeps, and cannot be set.
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// The leases that an earlier node has left.
#[derive(Default)]
pub(super) struct LeftState {
    pub(super) leases: Vec<LeaseRecord>,
    /// Their clients know that they have ended. Their workers may still run.
    pub(super) ended: Vec<LeaseRecord>,
    /// The devices that are out of service.
    pub(super) fenced: Vec<String>,
    /// The first id of a lease that was never used.
    pub(super) first_id: u64,
}

impl StateFolder {
    /// Opens the folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// The file system fails, another node uses the folder, another user can open it, or one of its files is damaged.
    pub(super) fn open(root: &Path) -> io::Result<(Self, LeftState)> {
        let root = std::path::absolute(root)?;
        create_private(&root)?;
        check_private(&root)?;
        for folder in ["leases", "ended", "workers", "fenced"] {
            create_private(&root.join(folder))?;
        }
        let mut lock = OpenOptions::new();
        lock.create(true).truncate(false).write(true).mode(0o600);
        let lock = lock.open(root.join("lock"))?;
        take_lock(&lock)?;
        let mut folder = Self { root, reserved: 0, _lock: lock };
        folder.remove_incomplete()?;
        let boot = fs::read_to_string(BOOT_ID).map_err(|error| at(Path::new(BOOT_ID), &error))?;
        let is_same_boot = folder.boot()?.is_some_and(|of| of == boot.trim());
        let mut left = LeftState::default();
        if is_same_boot {
            left.leases = folder.records("leases")?;
            left.ended = folder.records("ended")?;
            left.fenced = folder.names("fenced")?;
            folder.remove_sockets_without(&left)?;
        } else {
            // The workers of an earlier run of the machine are gone, and so is the memory that they held.
            for stale in ["leases", "ended", "workers", "fenced"] {
                let path = folder.root.join(stale);
                fs::remove_dir_all(&path).map_err(|error| at(&path, &error))?;
                create_private(&path)?;
            }
            folder.write("boot", boot.as_bytes())?;
        }
        left.first_id = folder.first_id()?;
        folder.reserved = left.first_id;
        Ok((folder, left))
    }

    /// The folder of the sockets of workers.
    pub(super) fn workers(&self) -> PathBuf {
        self.root.join("workers")
    }

    /// The secret key of tokens. The first call draws it.
    ///
    /// # Errors
    /// The file system fails, others can read the key, its file has another length, or the system has no random numbers.
    pub(super) fn key(&self) -> io::Result<[u8; 32]> {
        let (path, name) = (self.root.join("token.key"), "token.key");
        if let Some(key) = self.read(name)? {
            if path.metadata()?.mode() & 0o077 != 0 {
                let message = format!("others can read {0}; run `chmod 600 {0}`", path.display());
                return Err(io::Error::new(ErrorKind::PermissionDenied, message));
            }
            return key.try_into().map_err(|_| {
                let message = format!("{} does not have the 32 bytes of a key; remove it, which invalidates all tokens", path.display());
                io::Error::new(ErrorKind::InvalidData, message)
            });
        }
        let key = Self::new_key()?;
        self.write(name, &key)?;
        Ok(key)
    }

    /// Draws a key. It is that of a node without a folder.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub(super) fn new_key() -> io::Result<[u8; 32]> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        Ok(key)
    }

    /// Writes the record of a lease.
    ///
    /// # Errors
    /// The file system fails. An earlier record of the lease stays then.
    pub(super) fn write_lease(&mut self, record: &LeaseRecord) -> io::Result<()> {
        self.write_record("leases", record)
    }

    /// Writes the record of a lease whose end was announced: the next node ends its worker.
    ///
    /// # Errors
    /// The file system fails. An earlier record of the lease stays then, perhaps as that of a lease that has ended.
    pub(super) fn write_ending(&mut self, record: &LeaseRecord) -> io::Result<()> {
        // The rename comes first. With two records, the next node would end the worker of the lease, and also take over
        // the lease.
        self.end(record.lease.id)?;
        self.write_record("ended", record)
    }

    fn write_record(&mut self, folder: &str, record: &LeaseRecord) -> io::Result<()> {
        self.reserve(record.lease.id)?;
        let text = serde_json::to_vec_pretty(record)?;
        self.write(&format!("{folder}/{}", record.lease.id), &text)
    }

    /// Records that a lease has ended.
    ///
    /// # Errors
    /// The file system fails.
    pub(super) fn end(&self, lease: u64) -> io::Result<()> {
        let [from, to] = ["leases", "ended"].map(|folder| self.path(folder, lease));
        ignore_absent(fs::rename(from, to))
    }

    /// Removes the record of a lease whose worker has ended.
    ///
    /// # Errors
    /// The file system fails.
    pub(super) fn forget(&self, lease: u64) -> io::Result<()> {
        ignore_absent(fs::remove_file(self.path("leases", lease)))?;
        ignore_absent(fs::remove_file(self.path("ended", lease)))
    }

    /// Records that a device is out of service, or that it is in service again.
    ///
    /// # Errors
    /// The file system fails.
    pub(super) fn set_fenced(&self, device: &str, is_fenced: bool) -> io::Result<()> {
        let name = format!("fenced/{device}");
        match is_fenced {
            true => self.write(&name, b""),
            false => ignore_absent(fs::remove_file(self.root.join(name))),
        }
    }

    /// Makes sure that no later node gives the id of this lease to another one.
    fn reserve(&mut self, id: u64) -> io::Result<()> {
        if id >= self.reserved {
            let next = id.saturating_add(IDS);
            self.write("ids", next.to_string().as_bytes())?;
            self.reserved = next;
        }
        Ok(())
    }

    fn first_id(&self) -> io::Result<u64> {
        let Some(text) = self.read("ids")? else { return Ok(1) };
        let first = String::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
        first.filter(|first| *first <= LAST_ID).ok_or_else(|| {
            let path = self.root.join("ids");
            let message = format!(
                "{} has no number up to {LAST_ID}; remove the state folder",
                path.display()
            );
            invalid(message)
        })
    }

    /// The id of the run of the machine in which the folder was last used. `None` if the folder is new.
    fn boot(&self) -> io::Result<Option<String>> {
        let boot = self.read("boot")?;
        let mut folders = ["leases", "ended", "fenced"].iter().map(|folder| self.names(folder));
        if boot.is_none()
            && folders.try_fold(true, |all, names| Ok::<_, io::Error>(all && names?.is_empty()))?
        {
            return Ok(None);
        }
        let id = boot.and_then(|id| String::from_utf8(id).ok());
        let id = id.map(|id| id.trim().to_owned()).filter(|id| is_boot_id(id));
        id.map(Some).ok_or_else(|| {
            let root = self.root.display();
            invalid(format!(
                "{root}/boot does not have the id of a run of the machine, so leases and fences may hold or not; if the \
                 machine has not started again since the last node ended, run `cp {BOOT_ID} {root}/boot`; otherwise \
                 remove that file and the folders leases, ended, workers and fenced beside it"
            ))
        })
    }

    /// Removes the files that an earlier node was writing when it was killed.
    fn remove_incomplete(&self) -> io::Result<()> {
        for name in self.names("")?.iter().filter(|name| name.starts_with(INCOMPLETE)) {
            remove_left(&self.root.join(name))?;
        }
        Ok(())
    }

    /// Removes the sockets of workers without a lease, which ended with their node.
    fn remove_sockets_without(&self, left: &LeftState) -> io::Result<()> {
        let kept: Vec<_> =
            left.leases.iter().chain(&left.ended).map(|record| &record.worker.socket).collect();
        for name in self.names("workers")? {
            let socket = self.workers().join(name);
            if !kept.contains(&&socket) {
                remove_left(&socket)?;
            }
        }
        Ok(())
    }

    fn path(&self, folder: &str, lease: u64) -> PathBuf {
        self.root.join(folder).join(lease.to_string())
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        let path = self.root.join(folder);
        let read = || fs::read_dir(&path)?.map(|entry| Ok(entry?.file_name())).collect();
        let names: io::Result<Vec<OsString>> = read();
        let names = names.map_err(|error| at(&path, &error))?;
        Ok(names.iter().map(|name| name.to_string_lossy().into_owned()).collect())
    }

    /// The records of a folder. Anything else is logged, and stays.
    fn records(&self, folder: &str) -> io::Result<Vec<LeaseRecord>> {
        let mut records = Vec::new();
        for name in self.names(folder)? {
            let path = self.root.join(folder).join(&name);
            match record(&path, &name) {
                Ok(record) => records.push(record),
                Err(error) => {
                    tracing::error!(file = %path.display(), %error, "a lease of the state folder cannot be read");
                }
            }
        }
        Ok(records)
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.root.join(name);
        match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|error| at(&path, &error)),
        }
    }

    /// Writes a file, which has its old content until the new one is complete and on the disk.
    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(INCOMPLETE).tempfile_in(&self.root)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        let path = self.root.join(name);
        file.persist(&path)?;
        File::open(path.parent().unwrap_or(&self.root))?.sync_all()
    }
}

/// Reads a record, whose name is the id of its lease.
fn record(path: &Path, name: &str) -> io::Result<LeaseRecord> {
    if !path.symlink_metadata()?.is_file() {
        return Err(invalid("it is no file".into()));
    }
    let record: LeaseRecord = serde_json::from_slice(&fs::read(path)?)?;
    match record.lease.id {
        id if id.to_string() != name => Err(invalid("its name is not the id of its lease".into())),
        id if id > LAST_ID => Err(invalid(format!("the id of its lease is above {LAST_ID}"))),
        _ => Ok(record),
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, message)
}

/// An error that names the file or the folder.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Whether the text has the form of a boot id: a UUID.
fn is_boot_id(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12])
        && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// Removes a file of an earlier node. A folder is not of a node, and stays.
fn remove_left(path: &Path) -> io::Result<()> {
    if path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(());
    }
    ignore_absent(fs::remove_file(path)).map_err(|error| at(path, &error))
}

/// Takes the lock of a folder. The node before this one may have been killed while it launched a worker: then its child
/// has the lock until it begins its program.
fn take_lock(lock: &File) -> io::Result<()> {
    let end = Instant::now() + HANDOVER;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < end => {
                thread::sleep(HANDOVER / 100);
            }
            Err(TryLockError::WouldBlock) => {
                let message = "another node uses this folder; choose another one with --state";
                return Err(io::Error::new(ErrorKind::ResourceBusy, message));
            }
        }
    }
}

fn ignore_absent(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn create_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

/// Checks that only this user can use a folder.
fn check_private(folder: &Path) -> io::Result<()> {
    let metadata = fs::metadata(folder)?;
    let refuse = |message: String| Err(io::Error::new(ErrorKind::PermissionDenied, message));
    if !metadata.is_dir() {
        return refuse("it is a file; choose a folder".into());
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return refuse("the folder belongs to another user; choose another one".into());
    }
    if metadata.mode() & 0o077 != 0 {
        return refuse(format!("others can open it; run `chmod 700 {}`", folder.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER_BOOT: &str = "01234567-89ab-4cde-8f01-23456789abcd\n";

    /// The error of a folder that cannot be used.
    fn error_of(root: &Path) -> String {
        StateFolder::open(root).err().expect("the folder is used").to_string()
    }

    #[test]
    fn file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(error_of(file.path()).contains("choose a folder"));
    }

    #[test]
    fn damaged_boot_id_is_refused_and_nothing_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("state");
        let (state, _) = StateFolder::open(&root).unwrap();
        state.set_fenced("cuda:0", true).unwrap();
        drop(state);
        let boot = root.join("boot");
        for damaged in ["", "another", &OTHER_BOOT[1..], &OTHER_BOOT.replace('8', "g")] {
            fs::write(&boot, damaged).unwrap();
            let error = error_of(&root);
            assert!(
                error.contains(&*boot.to_string_lossy()) && error.contains("run `cp"),
                "{error}"
            );
        }
        fs::remove_file(&boot).unwrap();
        assert!(error_of(&root).contains("run `cp"));
        // As the error says.
        fs::copy(BOOT_ID, &boot).unwrap();
        assert_eq!(StateFolder::open(&root).unwrap().1.fenced, ["cuda:0"]);
    }

    #[test]
    fn ids_near_the_end_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("state");
        drop(StateFolder::open(&root).unwrap());
        for ids in ["", "-1", "18446744073709551615", "18446744073709551616"] {
            fs::write(root.join("ids"), ids).unwrap();
            let error = error_of(&root);
            assert!(error.contains("ids has no number"), "{ids}: {error}");
        }
    }

    #[test]
    fn foreign_files_and_folders_stay_or_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("state");
        drop(StateFolder::open(&root).unwrap());
        for foreign in ["new-x", "workers/x", "leases/x"] {
            fs::create_dir(root.join(foreign)).unwrap();
        }
        drop(StateFolder::open(&root).unwrap());
        assert!(root.join("new-x").exists());
        fs::create_dir(root.join("ids")).unwrap();
        let error = error_of(&root);
        assert!(error.contains("state/ids"), "{error}");
    }

    #[test]
    fn key_and_ids_last() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("state");
        let (mut state, left) = StateFolder::open(&root).unwrap();
        assert_eq!(left.first_id, 1);
        let key = state.key().unwrap();
        assert_eq!(state.key().unwrap(), key);
        assert_ne!(StateFolder::new_key().unwrap(), key);
        assert!(
            StateFolder::open(&root).is_err_and(|error| error.to_string().contains("another node"))
        );
        state.reserve(500).unwrap();
        fs::write(root.join("new-aBcDeF"), "incomplete").unwrap();
        state.set_fenced("cuda:0", true).unwrap();
        state.set_fenced("cuda:1", true).unwrap();
        state.set_fenced("cuda:1", false).unwrap();
        drop(state);
        let (mut state, left) = StateFolder::open(&root).unwrap();
        assert_eq!((state.key().unwrap(), left.first_id), (key, 500 + IDS));
        assert_eq!(left.fenced, ["cuda:0"]);
        // A lease of the earlier node is renewed.
        state.reserve(5).unwrap();
        assert!(!root.join("new-aBcDeF").exists());
        assert_eq!(root.join("token.key").metadata().unwrap().mode() & 0o777, 0o600);
        // After a start of the machine, nothing is left but the key and the ids.
        fs::write(root.join("boot"), OTHER_BOOT).unwrap();
        drop(state);
        let (state, left) = StateFolder::open(&root).unwrap();
        assert!(left.fenced.is_empty());
        assert_eq!((state.key().unwrap(), left.first_id), (key, 500 + IDS));
    }

    /// With two records, the next node would take over a lease whose end was announced.
    #[test]
    fn lease_whose_end_was_announced_has_one_record() {
        let (nonce, zero) = ([0; 16], serde_json::json!({ "secs": 0, "nanos": 0 }));
        let record = |is_confirmed: bool| -> LeaseRecord {
            serde_json::from_value(serde_json::json!({
                "lease": {
                    "id": 7, "slot": "cpu", "tenant": "a", "nonce": nonce, "quota": 1, "requested_secs": 60,
                    "requested_slot": null, "priority": 0, "class": "Shared", "lease_secs": 60, "generation": 1,
                    "age": zero, "remaining": zero,
                },
                "worker": {
                    "pid": 1, "started": 1, "socket": "socket", "uid": null, "cgroup": [], "memory_limit": null,
                },
                "is_detached": false, "is_confirmed": is_confirmed, "owner": null, "epoch": null, "at": zero,
            }))
            .unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("state");
        for has_earlier in [true, false] {
            let (mut state, _) = StateFolder::open(&root).unwrap();
            if has_earlier {
                state.write_lease(&record(false)).unwrap();
            }
            state.write_ending(&record(true)).unwrap();
            drop(state);
            let (state, left) = StateFolder::open(&root).unwrap();
            assert_eq!((left.leases, left.ended), (Vec::new(), vec![record(true)]));
            state.forget(7).unwrap();
        }
    }

    #[test]
    fn folder_that_others_can_open_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o750)).unwrap();
        let error = StateFolder::open(folder.path()).err().unwrap();
        assert!(error.to_string().contains("chmod 700"), "{error}");
    }
}
