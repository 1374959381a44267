//! The sandbox of a worker: a process that only reaches its sockets, its GPU and its cache of kernels.
//!
//! The launcher starts the worker in a PID namespace, where it is process 1, and in a cgroup, without the environment and
//! the descriptors of the supervisor. At the start of its `main`, before it has threads, a device or bytes of a tenant,
//! the worker confines itself with [`Confinement::enter`]: a root folder with libraries and GPUs only, no network, a user
//! id of its own, no capabilities, and filters of paths and of system calls. The launcher does only what must precede
//! `exec`, because code between `clone` and `exec` may not allocate.
//!
//! Each [`Part`] stands alone. A machine that does not give one loses this part and keeps the others. The
//! [`SandboxReport`] states which parts are in force.

mod calls;
mod files;
mod identity;

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fmt, fs, io,
    ops::RangeInclusive,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, lchown},
    },
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use parking_lot::Mutex;
use rustix::{
    process::{
        DumpableBehavior, Resource, getegid, geteuid, getpid, getrlimit, set_dumpable_behavior,
        setrlimit,
    },
    thread::{UnshareFlags, unshare_unsafe},
};
use serde::{Deserialize, Serialize};

use super::{
    cgroup::{Cgroups, WorkerCgroup, max_threads},
    descriptors::FIRST_FREE_DESCRIPTOR,
    error::{Error, Result, at},
};

/// The user ids of the workers of a node that runs as root, if the operator states no others: 4096 above the ones that
/// systemd gives to containers.
pub const DEFAULT_UIDS: RangeInclusive<u32> = 1_879_048_192..=1_879_052_287;

/// The sandbox of the workers of a node.
#[derive(Clone, Debug)]
pub struct Sandbox {
    is_required: bool,
    uids: Option<Arc<Uids>>,
    /// Those of the workers, or the reason why there are none.
    cgroups: Result<Arc<Cgroups>, String>,
}

/// The device files that a worker can open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeviceFiles {
    /// These ones. A worker without any is one on the CPU: its memory can be limited without a cgroup.
    These(Vec<PathBuf>),
    /// Those of all GPUs, because the files of its own GPU are not known.
    AllGpus,
}

impl Default for DeviceFiles {
    fn default() -> Self {
        Self::These(Vec::new())
    }
}

/// User ids for workers.
#[derive(Debug)]
struct Uids {
    range: RangeInclusive<u32>,
    used: Mutex<BTreeSet<u32>>,
}

/// The user id of a worker, which no other worker gets until all clones are dropped.
#[derive(Clone, Debug)]
pub(super) struct WorkerUid(Arc<UsedUid>);

#[derive(Debug)]
struct UsedUid {
    uids: Arc<Uids>,
    uid: u32,
}

impl WorkerUid {
    /// The user id. The group of the worker has the same number.
    pub(super) fn get(&self) -> u32 {
        self.0.uid
    }
}

impl Drop for UsedUid {
    fn drop(&mut self) {
        self.uids.used.lock().remove(&self.uid);
    }
}

impl Sandbox {
    /// A sandbox of all parts that the machine gives. If the supervisor is root, each worker has one of `uids`, where
    /// these user ids exist.
    ///
    /// It divides the cgroup of this process among the workers. For that it may move this process into a child of the
    /// cgroup. It ends workers there of a supervisor that was killed, unless they may outlive it.
    pub fn new(uids: RangeInclusive<u32>) -> Self {
        let is_usable =
            geteuid().is_root() && identity::are_mapped(&uids) && identity::may_use_uids();
        let uids = is_usable.then(|| Arc::new(Uids { range: uids, used: Mutex::default() }));
        Self { is_required: false, uids, cgroups: Cgroups::open().map(Arc::new) }
    }

    /// Makes every part required: a worker that lacks one does not start.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// Takes a user id for a worker. `None` if workers have that of the supervisor.
    pub(super) fn take_uid(&self) -> Option<Result<WorkerUid>> {
        let uids = self.uids.as_ref()?;
        let mut used = uids.used.lock();
        let free = uids.range.clone().find(|uid| used.insert(*uid));
        let uid = free.map(|uid| WorkerUid(Arc::new(UsedUid { uids: uids.clone(), uid })));
        Some(uid.ok_or(Error::NoUid { count: used.len() }))
    }

    /// Takes the user id of a worker that an earlier supervisor has started.
    pub(super) fn hold_uid(&self, uid: u32) -> Result<WorkerUid> {
        let uids = self.uids.as_ref().filter(|uids| uids.range.contains(&uid));
        let uids = uids.ok_or(Error::OtherUid { uid })?;
        if !uids.used.lock().insert(uid) {
            return Err(Error::OtherUid { uid });
        }
        Ok(WorkerUid(Arc::new(UsedUid { uids: uids.clone(), uid })))
    }

    /// Creates the cgroup of a worker, which may outlive this process or not. `None` if the machine gives none.
    pub(super) fn create_cgroup(&self, may_outlive: bool) -> Option<Result<WorkerCgroup>> {
        let cgroups = self.cgroups.as_ref().ok()?;
        Some(cgroups.create(may_outlive).map_err(Error::Cgroup))
    }

    /// The cgroup of a worker that an earlier supervisor has started.
    pub(super) fn hold_cgroup(&self, folders: &[PathBuf]) -> Option<WorkerCgroup> {
        let cgroups = self.cgroups.as_ref().ok()?;
        (!folders.is_empty()).then(|| cgroups.hold(folders.to_vec()))
    }

    /// The argument of a worker, from which it parses its [`Confinement`]. `no_processes` is the reason why it has no
    /// PID namespace.
    pub(super) fn argument(
        &self,
        uid: Option<&WorkerUid>,
        writable: Option<&Path>,
        devices: &DeviceFiles,
        no_processes: Option<String>,
    ) -> String {
        let host_memory = match &self.cgroups {
            Ok(cgroups) => Ok(cgroups.to_string()),
            Err(reason) if *devices == DeviceFiles::default() => {
                Ok(format!("RLIMIT_DATA, for private memory only, without a cgroup ({reason})"))
            }
            Err(reason) => Err(format!("no cgroup: {reason}")),
        };
        let confinement = Confinement {
            is_required: self.is_required,
            uid: uid.map(WorkerUid::get),
            supervisor: (geteuid().as_raw(), getegid().as_raw()),
            is_root: identity::is_root_of_machine(),
            writable: writable.map(Path::to_owned),
            devices: devices.clone(),
            no_processes,
            host_memory,
        };
        // A path that is not UTF-8 is the only value without JSON. The worker then cannot write to its cache.
        let json = serde_json::to_string(&confinement);
        let json = json.or_else(|_| {
            serde_json::to_string(&Confinement { writable: None, ..confinement.clone() })
        });
        format!("--sandbox={}", json.unwrap_or_default())
    }
}

/// Makes a user and a group the owners of a folder and of its contents. Follows no symbolic link, and the supervisor
/// must be the only process that can change the folder.
///
/// # Errors
/// The supervisor may not do that, or the file system fails. A file with several links is refused: another one may be
/// outside of the folder, where a hostile worker found it.
pub(crate) fn give(folder: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let mut folders = vec![folder.to_owned()];
    give_one(folder, uid, gid)?;
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
        for entry in entries.map_err(|error| at(&folder, &error))? {
            let path = entry.path();
            give_one(&path, uid, gid)?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            }
        }
    }
    Ok(())
}

fn give_one(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let file = fs::symlink_metadata(path).map_err(|error| at(path, &error))?;
    if !file.is_dir() && file.nlink() > 1 {
        return Err(at(path, &io::Error::other("the file has several links")));
    }
    lchown(path, Some(uid), Some(gid)).map_err(|error| at(path, &error))
}

/// Whether a worker with a sandbox inherits this variable of the supervisor's environment.
pub(super) fn passes(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b"CUDA_")
        || [&b"LD_LIBRARY_PATH"[..], b"RUST_BACKTRACE", b"RUST_LOG"].contains(&name)
}

/// Makes the memory and the descriptors of this process unreadable for other processes of its user. They are readable
/// for root only. The kernel then writes no core file of the process.
///
/// A node calls it before it reads a key.
///
/// # Errors
/// The kernel refuses the setting.
pub fn hide_memory() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// The sandbox of one worker, as it parses it from its argument `--sandbox=...`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Confinement {
    is_required: bool,
    /// The user id and the group id of the worker. `None` if it has those of the supervisor.
    uid: Option<u32>,
    /// The user id and the group id of the supervisor, as the supervisor sees them.
    supervisor: (u32, u32),
    /// Whether the supervisor is the user 0 of the machine, and not of a user namespace.
    is_root: bool,
    /// The folder that the worker may write to.
    writable: Option<PathBuf>,
    devices: DeviceFiles,
    /// The reason why the launcher created no PID namespace.
    no_processes: Option<String>,
    /// The means that limits the host memory, or the reason why there is none.
    host_memory: Result<String, String>,
}

impl FromStr for Confinement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        serde_json::from_str(text)
            .map_err(|error| format!("{error}; only a supervisor writes this option"))
    }
}

impl Confinement {
    /// Confines this process, forever. Call it at the start of `main`, while the process has one thread.
    ///
    /// Later threads inherit the sandbox. Descriptors that are open stay usable.
    ///
    /// # Errors
    /// [`Error::Sandbox`] if every part is required and the machine does not give one. End the process then.
    pub fn enter(self) -> Result<SandboxReport> {
        let mut report = SandboxReport::default();
        report.add(Part::Descriptors, no_other_descriptors().and(limit_resources()));
        let are_all_gpus = self.devices == DeviceFiles::AllGpus;
        let gpus = match self.devices {
            DeviceFiles::These(files) => files,
            DeviceFiles::AllGpus => files::all_gpus(),
        };
        let view = files::View::new(self.writable, gpus.clone());

        // While the process has the capabilities of its user namespace, or those of root.
        let identity = identity::map_user(self.supervisor);
        let has_own_user = self.uid.is_some() || matches!(identity, Ok(true));
        let reason = self.no_processes.unwrap_or_else(|| "an unknown reason".to_owned());
        report.add(
            Part::Processes,
            match getpid().is_init() {
                true => Ok(()),
                false => Err(format!("no PID namespace with a `/proc` of its own: {reason}")),
            },
        );
        let network = UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
        // SAFETY: no flag is `FILES`, so no thread loses descriptors.
        let unshared = unsafe { unshare_unsafe(network) };
        report.add(Part::Network, unshared);
        let root = view.become_root();
        identity::empty_bounding_set();
        let identity = match (identity, self.uid) {
            (Ok(true), _) if self.is_root => Err(io::Error::other(
                "the worker is root, because the node is root without the capabilities to start and end processes of other users",
            )),
            (Ok(true), _) => Ok(()),
            (Ok(false), Some(uid)) => identity::become_user(uid, &gpus),
            (Ok(false), None) => Err(io::Error::other(
                "the worker has the user of the supervisor, which may create no user namespaces",
            )),
            (Err(error), _) => Err(error),
        };
        report.add(Part::Identity, identity);
        report.add(Part::Capabilities, identity::drop_capabilities());

        // From here on, only restrictions that need no capability.
        report.add(Part::NoNewPrivileges, rustix::thread::set_no_new_privs(true));
        if has_own_user && let Err(error) = limit_threads() {
            tracing::debug!(%error, "only a cgroup limits the threads of this worker");
        }
        report.add(Part::Files, view.restrict(root.err()));
        report.add(
            Part::Devices,
            match are_all_gpus {
                false => Ok(()),
                true => Err("NVML does not tell which device files are those of its GPU"),
            },
        );
        report.add(Part::Memory, hide_memory());
        report.add(Part::SystemCalls, calls::filter(getpid()));
        let (means, missing) = match self.host_memory {
            Ok(means) => (Some(means), None),
            Err(reason) => (None, Some(reason)),
        };
        report.0.push(PartReport { part: Part::HostMemory, means, missing });
        if self.is_required && !report.is_complete() {
            return Err(Error::Sandbox { missing: report.to_string() });
        }
        Ok(report)
    }
}

/// The maximum number of descriptors of a worker. A program with CUDA has about 50. The cube of a third of it is the number
/// of files that epolls can watch. The kernel counts those for each user, and the user of a worker in a user namespace is
/// that of the supervisor: a worker with many descriptors could use all that this user may watch, and the supervisor could
/// start no other worker.
const DESCRIPTORS: u64 = 256;

/// The maximum number of signals of a worker that wait, also of its timers. The kernel looks for a signal among all of them,
/// without a pause for other processes.
const SIGNALS: u64 = 256;

/// Limits the descriptors and the signals of this process.
fn limit_resources() -> io::Result<()> {
    lower_limit(Resource::Nofile, DESCRIPTORS)?;
    lower_limit(Resource::Sigpending, SIGNALS)
}

/// Limits the threads of this process, whose user has no others. Also where no cgroup does so.
fn limit_threads() -> io::Result<()> {
    // Older kernels count the threads of a user in all namespaces together.
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) < (Some(5), Some(14)) {
        return Err(io::Error::other("the kernel is older than 5.14"));
    }
    lower_limit(Resource::Nproc, max_threads() as u64)
}

/// Lowers a limit of this process.
fn lower_limit(resource: Resource, most: u64) -> io::Result<()> {
    let mut limit = getrlimit(resource);
    let lower = |now: Option<u64>| Some(now.unwrap_or(u64::MAX).min(most));
    (limit.current, limit.maximum) = (lower(limit.current), lower(limit.maximum));
    Ok(setrlimit(resource, limit)?)
}

/// Checks that the launcher has left no descriptors to this process besides the standard ones and the sockets.
fn no_other_descriptors() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok()).unwrap_or(0);
        // SAFETY: the call reads the flags of a descriptor.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        // The descriptor of this loop closes on `exec`, inherited ones do not.
        if number >= FIRST_FREE_DESCRIPTOR && flags & libc::FD_CLOEXEC == 0 {
            return Err(io::Error::other(format!(
                "descriptor {number} is inherited, because the kernel is older than 5.11 or forbids `close_range`"
            )));
        }
    }
    Ok(())
}

/// A part of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// No descriptors of the supervisor.
    Descriptors,
    /// A PID namespace: the worker sees no other process, and all of its processes end with it.
    Processes,
    /// Namespaces of the network, of System V and of the host name: the worker has no network.
    Network,
    /// A user id of its own, or a user namespace of its own.
    Identity,
    /// No capabilities, also after `exec`.
    Capabilities,
    /// No more rights by `exec` of a setuid program.
    NoNewPrivileges,
    /// Only its libraries, devices and cache: by a root folder of its own, by Landlock, or by both.
    Files,
    /// No device files of GPUs other than its own.
    Devices,
    /// Its memory is unreadable for other processes of its user.
    Memory,
    /// A filter of system calls, which has those that libraries and the driver need: no new processes, no signals to others,
    /// no connections, no descriptors to others, nothing for administrators.
    SystemCalls,
    /// A hard limit of its host memory: by a cgroup, or by `RLIMIT_DATA` if the worker has no GPU.
    HostMemory,
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Descriptors => "no descriptors of the node",
            Self::Processes => "PID namespace",
            Self::Network => "network namespace",
            Self::Identity => "user of its own",
            Self::Capabilities => "no capabilities",
            Self::NoNewPrivileges => "no new privileges",
            Self::Files => "files",
            Self::Devices => "only the device files of its GPU",
            Self::Memory => "unreadable memory",
            Self::SystemCalls => "filter of system calls",
            Self::HostMemory => "limit of host memory",
        })
    }
}

/// The parts of a worker's sandbox, and the reasons for those that are not in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxReport(Vec<PartReport>);

/// A part of a worker's sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartReport {
    /// The part.
    pub part: Part,
    /// The means, if there are several ones for the part.
    pub means: Option<String>,
    /// The reason why the part is not, or not completely, in force. `None` if it is.
    pub missing: Option<String>,
}

impl SandboxReport {
    fn add<E: fmt::Display>(&mut self, part: Part, entered: Result<(), E>) {
        let missing = entered.err().map(|error| error.to_string());
        self.0.push(PartReport { part, means: None, missing });
    }

    /// The parts. None if the worker has no sandbox.
    pub fn parts(&self) -> &[PartReport] {
        &self.0
    }

    /// The means that limits the host memory of the worker, if there is one.
    pub fn memory_limit(&self) -> Option<&str> {
        self.0.iter().find(|part| part.part == Part::HostMemory)?.means.as_deref()
    }

    /// The parts that are in force in `other` and not here, with the reasons.
    pub(crate) fn lacks(&self, other: &Self) -> String {
        let in_force = other.0.iter().filter(|part| part.missing.is_none());
        let lacks = in_force.filter_map(|PartReport { part, .. }| {
            match self.0.iter().find(|own| own.part == *part) {
                Some(own) => Some(format!("{part}: {}", own.missing.as_ref()?)),
                None => Some(part.to_string()),
            }
        });
        lacks.collect::<Vec<_>>().join("; ")
    }

    /// Whether the worker has a sandbox of which every part is in force.
    pub fn is_complete(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|part| part.missing.is_none())
    }
}

/// Writes the parts that are missing.
impl fmt::Display for SandboxReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("no sandbox");
        }
        let missing = self.0.iter().filter_map(|part| Some((part.part, part.missing.as_ref()?)));
        for (index, (part, reason)) in missing.enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(formatter, "{separator}{part}: {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_with_several_links_is_not_given() {
        let folder = tempfile::tempdir().unwrap();
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        fs::create_dir(folder.path().join("kernels")).unwrap();
        fs::write(folder.path().join("kernels/one"), "").unwrap();
        give(folder.path(), uid, gid).unwrap();
        let key = tempfile::NamedTempFile::new().unwrap();
        fs::hard_link(key.path(), folder.path().join("kernels/two")).unwrap();
        let error = give(folder.path(), uid, gid).unwrap_err();
        assert!(error.to_string().ends_with("kernels/two: the file has several links"), "{error}");
    }
}
