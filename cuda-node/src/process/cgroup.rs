//! Cgroups of workers: hard limits of their host memory and of the number of their threads, and their share of the
//! processors.
//!
//! A worker has a cgroup of its own, next to that of the supervisor. It enters the cgroup before `exec`, and the
//! supervisor removes it after the end of the worker. The supervisor needs a cgroup that it may divide: of version 2 if
//! the service manager delegates one (`Delegate=cpu memory pids`), else of version 1 if it may write there.
//!
//! In version 2 only cgroups without processes can have children with controllers. So a supervisor that is alone in its
//! cgroup moves into the child [`SUPERVISOR`], as `DelegateSubgroup=` of systemd does.

use std::{
    fmt, fs,
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::error::at;

/// The cgroup of the supervisor, in the one that is delegated to it.
const SUPERVISOR: &str = "supervisor";

/// The beginning of the names of workers' cgroups. The id of the supervisor and a number follow.
const PREFIX: &str = "cuda-node-";

/// Follows [`PREFIX`] in the names of cgroups of workers that do not outlive their supervisor.
const ENDS: &str = "ends-";

/// The time that the end of the processes of a killed supervisor may take.
const END: Duration = Duration::from_secs(2);

/// The maximum number of threads of a worker on a machine with few processors. The filter of system calls refuses it
/// other processes. The threads of 16 workers are below the usual limit of a machine, 32,768.
const THREADS: usize = 1024;

/// The maximum number of threads of a worker. The CPU device has one for each processor.
pub(super) fn max_threads() -> usize {
    THREADS.max(4 * thread::available_parallelism().map_or(1, usize::from))
}

/// The files with the share of the processors that a worker has while all are busy, and its value. It is a tenth of that
/// of the supervisor. So the supervisor runs at once, and a worker that shares a busy machine still gets on.
const SHARES: [(&str, &str); 2] = [("cpu.weight", "10"), ("cpu.shares", "102")];

/// The number of the next cgroup of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The cgroup that a supervisor divides among its workers.
#[derive(Debug)]
pub(super) struct Cgroups {
    version: Version,
    /// Those of memory, threads and processors. That of memory is the first one.
    folders: Vec<PathBuf>,
}

impl fmt::Display for Cgroups {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.version == Version::V1 { 1 } else { 2 };
        write!(formatter, "cgroup v{version} in {}", self.memory().display())
    }
}

impl Cgroups {
    /// Prepares the cgroup of this process. Kills the workers that a killed supervisor left there, except those that may
    /// outlive it, and removes their cgroups.
    ///
    /// # Errors
    /// The reasons why this process may divide neither a cgroup of version 2 nor one of version 1.
    pub(super) fn open() -> Result<Self, String> {
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        Self::open_in(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
    }

    /// `mounts` and `own` have the formats of `/proc/self/mountinfo` and `/proc/self/cgroup`.
    fn open_in(mounts: &str, own: &str) -> Result<Self, String> {
        let none = || "the machine has none with the controller `memory`".to_owned();
        let second = folder(mounts, own, None).ok_or_else(none).and_then(open_v2);
        second.or_else(|second| {
            let others = ["pids", "cpu"].map(|name| folder(mounts, own, Some(name)));
            let first = folder(mounts, own, Some("memory")).ok_or_else(none);
            let first = first.and_then(|memory| open_v1(memory, others.into_iter().flatten()));
            first.map_err(|first| format!("cgroup v2: {second}; cgroup v1: {first}"))
        })
    }

    /// Creates the cgroup of a worker, which may outlive this process or not. It has no limit of memory until
    /// [`WorkerCgroup::limit_memory`].
    ///
    /// # Errors
    /// The file system fails.
    pub(super) fn create(&self, may_outlive: bool) -> io::Result<WorkerCgroup> {
        let kind = if may_outlive { "" } else { ENDS };
        let mut cgroup = loop {
            if let Some(locked) = self.create_locked(&self.free_name(kind))? {
                break locked;
            }
        };
        cgroup.limit_threads_and_time()?;
        Ok(cgroup)
    }

    /// Creates cgroups with this name, and locks them. `None` if another supervisor, which starts at this moment, has
    /// removed one of them before it was locked.
    fn create_locked(&self, name: &str) -> io::Result<Option<WorkerCgroup>> {
        let mut cgroup = self.hold(Vec::new());
        for parent in &self.folders {
            let folder = parent.join(name);
            fs::create_dir(&folder).map_err(|error| at(&folder, &error))?;
            let lock = lock_created(&folder, fs::File::open(&folder));
            cgroup.folders.push(folder);
            match lock? {
                Some(lock) => cgroup.locks.push(lock),
                None => return Ok(None),
            }
        }
        Ok(Some(cgroup))
    }

    fn memory(&self) -> &Path {
        self.folders.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// A name that no cgroup has. A worker of an earlier supervisor with the id of this one may still run.
    fn free_name(&self, kind: &str) -> String {
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{PREFIX}{kind}{}-{number}", process::id());
            if !self.memory().join(&name).exists() {
                return name;
            }
        }
    }

    /// Takes over the cgroup of a worker that an earlier supervisor has started.
    pub(super) fn hold(&self, folders: Vec<PathBuf>) -> WorkerCgroup {
        // Without a lock, another node may remove the cgroup after its last process has ended.
        let locks = folders.iter().filter_map(|folder| lock(folder).ok()).collect();
        WorkerCgroup { version: self.version, folders, locks, has_share: false }
    }
}

/// The folder of this process's cgroup: of version 2, or in the hierarchy of a controller of version 1.
fn folder(mounts: &str, own: &str, controller: Option<&str>) -> Option<PathBuf> {
    let own = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_wanted = match controller {
            None => controllers.is_empty(),
            Some(name) => controllers.split(',').any(|other| other == name),
        };
        is_wanted.then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, target) = (mount.next()?, mount.next()?);
        let (mut system, mut options) = (system.split(' '), system.rsplit(' ').next()?.split(','));
        let is_wanted = match (system.next()?, controller) {
            ("cgroup2", None) => true,
            ("cgroup", Some(name)) => options.any(|option| option == name),
            _ => false,
        };
        // A container sees a part of the hierarchy.
        let path = Path::new(own).strip_prefix(root).ok()?;
        is_wanted.then(|| Path::new(target).join(path))
    })
}

fn open_v2(own: PathBuf) -> Result<Cgroups, String> {
    let memory = match own.parent() {
        Some(parent) if own.ends_with(SUPERVISOR) => parent.to_owned(),
        _ => own.clone(),
    };
    let has = |file: &str| {
        let names = fs::read_to_string(memory.join(file)).unwrap_or_default();
        names.split_whitespace().any(|name| name == "memory")
    };
    if !has("cgroup.controllers") {
        return Err(format!("{} has no controller `memory`", memory.display()));
    }
    if !has("cgroup.subtree_control") {
        let moved = (own == memory).then(|| move_into_child(&own)).transpose()?;
        let control = memory.join("cgroup.subtree_control");
        if let Err(error) = fs::write(&control, "+memory") {
            if let Some(child) = moved {
                _ = fs::write(memory.join("cgroup.procs"), process::id().to_string());
                _ = fs::remove_dir(child);
            }
            return Err(at(&control, &error).to_string());
        }
    }
    // Without them, workers have no limit of threads, and no share of the processors.
    for controller in ["+pids", "+cpu"] {
        _ = fs::write(memory.join("cgroup.subtree_control"), controller);
    }
    remove_left(&memory);
    checked(Version::V2, vec![memory])
}

/// Moves this process, which has to be alone in its cgroup, into a child of the cgroup.
fn move_into_child(own: &Path) -> Result<PathBuf, String> {
    let processes = own.join("cgroup.procs");
    let all = fs::read_to_string(&processes).map_err(|error| at(&processes, &error).to_string())?;
    let own_id = process::id().to_string();
    if all.split_whitespace().any(|id| id != own_id) {
        return Err(format!("{} has processes other than the node", own.display()));
    }
    let child = own.join(SUPERVISOR);
    match fs::create_dir(&child) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(at(&child, &error).to_string());
        }
        _ => {}
    }
    let target = child.join("cgroup.procs");
    fs::write(&target, own_id).map_err(|error| at(&target, &error).to_string())?;
    Ok(child)
}

/// `others` are the folders of further controllers. Those that this process may not divide are left out.
fn open_v1(memory: PathBuf, others: impl Iterator<Item = PathBuf>) -> Result<Cgroups, String> {
    let others: Vec<_> = others.collect();
    for folder in others.iter().chain([&memory]) {
        remove_left(folder);
    }
    let mut cgroups = checked(Version::V1, vec![memory])?;
    for other in others {
        if !cgroups.folders.contains(&other) {
            let folders = cgroups.folders.iter().cloned().chain([other]).collect();
            cgroups = checked(Version::V1, folders).unwrap_or(cgroups);
        }
    }
    Ok(cgroups)
}

/// Checks that a cgroup can be created.
fn checked(version: Version, folders: Vec<PathBuf>) -> Result<Cgroups, String> {
    let cgroups = Cgroups { version, folders };
    cgroups.create(false).map_err(|error| error.to_string())?;
    Ok(cgroups)
}

/// Locks the folder of a cgroup until the file is closed. A supervisor that has ended locks nothing, whatever process id
/// it had, in whatever namespace.
fn lock(folder: &Path) -> io::Result<fs::File> {
    lock_open(fs::File::open(folder)?)
}

fn lock_open(file: fs::File) -> io::Result<fs::File> {
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Locks a folder that was created, and opened then. `None` if another supervisor has removed it before it was locked, or
/// does so now.
fn lock_created(folder: &Path, open: io::Result<fs::File>) -> io::Result<Option<fs::File>> {
    match open.and_then(lock_open) {
        Ok(lock) => Ok(is_present(folder, &lock).then_some(lock)),
        Err(error) if is_taken(&error) => Ok(None),
        Err(error) => Err(at(folder, &error)),
    }
}

/// Whether another supervisor has removed the folder, or has locked it to do so.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WouldBlock)
}

/// Whether this open folder is the one with this name.
fn is_present(folder: &Path, open: &fs::File) -> bool {
    let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let now = fs::metadata(folder).map(inode);
    now.is_ok_and(|now| open.metadata().is_ok_and(|open| inode(open) == now))
}

/// Removes the cgroups of supervisors that have ended. Kills the processes in them, except those that may outlive their
/// supervisor: their cgroups stay.
fn remove_left(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let Ok(_lock) = lock(&entry.path()) else { continue };
        if name.starts_with(ENDS) {
            kill_all(&entry.path());
        }
        _ = fs::remove_dir(entry.path());
    }
}

/// Kills the processes in a cgroup, and waits until they have ended.
fn kill_all(cgroup: &Path) {
    let processes = || {
        let ids = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
        // A process of another PID namespace, which this one cannot reach, is 0.
        ids.lines().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect::<Vec<_>>()
    };
    let until = Instant::now() + END;
    loop {
        let left = processes();
        for id in &left {
            let Ok(process) = pidfd_open(*id, PidfdFlags::empty()) else { continue };
            // Not a process that has got the id of an ended one meanwhile.
            if processes().contains(id) {
                _ = pidfd_send_signal(process, Signal::KILL);
            }
        }
        if left.is_empty() || Instant::now() > until {
            return;
        }
        thread::sleep(END / 200);
    }
}

/// The cgroup of a worker. Dropping it removes the cgroup. Drop it after the end of the worker.
#[derive(Debug)]
pub(super) struct WorkerCgroup {
    version: Version,
    /// That of the memory is the first one.
    folders: Vec<PathBuf>,
    /// The locks of the folders. They show other nodes that the supervisor lives.
    locks: Vec<fs::File>,
    /// Whether it has a share of the processors of its own.
    has_share: bool,
}

impl WorkerCgroup {
    /// Whether the worker has a small share of the processors.
    pub(super) fn has_share(&self) -> bool {
        self.has_share
    }

    fn limit_threads_and_time(&mut self) -> io::Result<()> {
        let write = |file: &Path, value: &str| {
            let written = file.exists().then(|| fs::write(file, value)).transpose();
            written.map(|written| written.is_some()).map_err(|error| at(file, &error))
        };
        let threads = max_threads().to_string();
        for folder in &self.folders {
            write(&folder.join("pids.max"), &threads)?;
            for (file, share) in SHARES {
                self.has_share |= write(&folder.join(file), share)?;
            }
        }
        Ok(())
    }

    /// The folders, of which that of the memory is the first one.
    pub(super) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Opens the files through which a process enters the cgroup, by writing `0`.
    ///
    /// # Errors
    /// The file system fails.
    pub(super) fn entrances(&self) -> io::Result<Vec<fs::File>> {
        let files = self.folders.iter().map(|folder| folder.join("cgroup.procs"));
        files
            .map(|file| {
                fs::File::options().write(true).open(&file).map_err(|error| at(&file, &error))
            })
            .collect()
    }

    /// Limits the memory to what is in use and `additional` bytes, without swap. The kernel kills a worker that goes
    /// beyond. Returns the limit.
    ///
    /// # Errors
    /// The file system fails.
    pub(super) fn limit_memory(&self, additional: u64) -> io::Result<u64> {
        let (used, limit, swap) = match self.version {
            Version::V1 => (
                "memory.usage_in_bytes",
                "memory.limit_in_bytes",
                // The sum of memory and swap. Missing without swap.
                "memory.memsw.limit_in_bytes",
            ),
            Version::V2 => ("memory.current", "memory.max", "memory.swap.max"),
        };
        let used = self.file(used);
        let used = fs::read_to_string(&used).map_err(|error| at(&used, &error))?;
        let used = used.trim().parse::<u64>().map_err(io::Error::other)?;
        let bytes = used.saturating_add(additional);
        let write = |name: &str, value: u64| {
            let file = self.file(name);
            fs::write(&file, value.to_string()).map_err(|error| at(&file, &error))
        };
        write(limit, bytes)?;
        if self.file(swap).exists() {
            write(swap, if self.version == Version::V1 { bytes } else { 0 })?;
        }
        if self.version == Version::V2 {
            // All processes of the worker end together.
            write("memory.oom.group", 1)?;
        }
        Ok(bytes)
    }

    /// Whether the kernel has killed the worker because it went beyond the limit.
    pub(super) fn is_out_of_memory(&self) -> bool {
        let events = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let events = fs::read_to_string(self.file(events)).unwrap_or_default();
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.is_some_and(|kills| kills.trim() != "0")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folders.first().map_or_else(PathBuf::new, |memory| memory.join(name))
    }
}

impl Drop for WorkerCgroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            // A node may have removed it that found no processes in it.
            if let Err(error) = fs::remove_dir(folder)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(folder = %folder.display(), %error, "the cgroup of a worker remains");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use tempfile::TempDir;

    use super::*;

    /// A folder that stands in for a mounted hierarchy, with the cgroup `/node` of this process.
    fn stand_in(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("node")).unwrap();
        for (name, contents) in files {
            fs::write(root.path().join("node").join(name), contents).unwrap();
        }
        root
    }

    fn mount(root: &TempDir, system: &str, options: &str) -> String {
        format!("30 20 0:1 / {} rw - {system} {system} rw,{options}\n", root.path().display())
    }

    #[test]
    fn folder_of_a_container_is_relative_to_its_part_of_the_hierarchy() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs rw\n\
                      35 31 0:32 /docker/a /sys/fs/cgroup/memory rw master:1 - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let own = "8:pids:/docker/a\n4:cpu,memory:/docker/a/b\n0::/user.slice/x:y.scope\n";
        let of = |controller| folder(mounts, own, controller);
        assert_eq!(of(Some("memory")), Some("/sys/fs/cgroup/memory/b".into()));
        assert_eq!(of(None), Some("/sys/fs/cgroup/unified/user.slice/x:y.scope".into()));
        assert_eq!(of(Some("pids")), None);
    }

    #[test]
    fn delegated_cgroup_is_divided_and_the_supervisor_moves() {
        let own = process::id().to_string();
        let root = stand_in(&[
            ("cgroup.controllers", "cpu memory pids"),
            ("cgroup.subtree_control", ""),
            ("cgroup.procs", &own),
        ]);
        let cgroups = Cgroups::open_in(&mount(&root, "cgroup2", ""), "0::/node\n").unwrap();
        let node = root.path().join("node");
        let read = |file: PathBuf| fs::read_to_string(file).unwrap();
        assert_eq!(read(node.join("supervisor/cgroup.procs")), own);
        assert_eq!(read(node.join("cgroup.subtree_control")), "+cpu");

        let worker = cgroups.create(true).unwrap();
        let folder = worker.folders[0].clone();
        assert_eq!(folder.parent(), Some(&*node));
        fs::write(folder.join("memory.current"), "100\n").unwrap();
        fs::write(folder.join("memory.swap.max"), "max\n").unwrap();
        assert_eq!(worker.limit_memory(50).unwrap(), 150);
        for (file, value) in [("max", "150"), ("swap.max", "0"), ("oom.group", "1")] {
            assert_eq!(read(folder.join(format!("memory.{file}"))), value);
        }
        fs::write(folder.join("memory.events"), "low 0\noom 0\noom_kill 0\n").unwrap();
        assert!(!worker.is_out_of_memory());
        fs::write(folder.join("memory.events"), "low 0\noom 1\noom_kill 1\n").unwrap();
        assert!(worker.is_out_of_memory());
    }

    #[test]
    fn supervisor_in_its_subgroup_divides_the_parent() {
        let root =
            stand_in(&[("cgroup.controllers", "memory"), ("cgroup.subtree_control", "memory")]);
        let mounts = mount(&root, "cgroup2", "");
        let cgroups = Cgroups::open_in(&mounts, "0::/node/supervisor\n").unwrap();
        assert_eq!(cgroups.folders, [root.path().join("node")]);
        assert!(cgroups.to_string().starts_with("cgroup v2 in "), "{cgroups}");
    }

    #[test]
    fn cgroup_that_cannot_be_divided_is_named() {
        let own = format!("1\n{}\n", process::id());
        let root = stand_in(&[
            ("cgroup.controllers", "memory"),
            ("cgroup.subtree_control", ""),
            ("cgroup.procs", &own),
        ]);
        let error = Cgroups::open_in(&mount(&root, "cgroup2", ""), "0::/node\n").unwrap_err();
        assert!(error.contains("node has processes other than the node; cgroup v1: "), "{error}");
        fs::write(root.path().join("node/cgroup.controllers"), "cpu").unwrap();
        let error = Cgroups::open_in(&mount(&root, "cgroup2", ""), "0::/node\n").unwrap_err();
        assert!(error.contains("node has no controller `memory`"), "{error}");
        assert!(!root.path().join("node/supervisor").exists());
    }

    #[test]
    fn cgroups_of_a_killed_supervisor_are_removed() {
        let root = stand_in(&[]);
        let node = root.path().join("node");
        // The process ids say nothing about supervisors of other PID namespaces.
        let own = format!("cuda-node-ends-{}-9", process::id());
        let [left, own, used, other, another] =
            ["cuda-node-4194305-7", &own, "cuda-node-4194305-8", "cuda-node-ends-4194305-9", "x"]
                .map(|name| node.join(name));
        for folder in [&left, &own, &used, &other, &another] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(used.join("process"), "").unwrap();
        let lives = lock(&other).unwrap();
        let mounts = mount(&root, "cgroup", "memory");
        let cgroups = Cgroups::open_in(&mounts, "4:memory:/node\n").unwrap();
        assert!(cgroups.to_string().starts_with("cgroup v1 in "), "{cgroups}");
        assert!(!left.exists() && !own.exists());
        assert!(used.exists() && other.exists() && another.exists());
        drop(lives);
        remove_left(&node);
        assert!(!other.exists() && another.exists());
    }

    /// At each step between the creation of a cgroup and its lock.
    #[test]
    fn cgroup_that_another_node_removes_is_not_locked() {
        let root = stand_in(&[]);
        let folder = root.path().join("node/created");
        let open = || fs::File::open(&folder);
        let is_locked = |open| lock_created(&folder, open).unwrap().is_some();
        assert!(!is_locked(open()), "it was removed before it was opened");
        fs::create_dir(&folder).unwrap();
        assert!(is_locked(open()));
        let other = lock(&folder).unwrap();
        assert!(!is_locked(open()), "another node has locked it");
        drop(other);
        let [removed, replaced] = [(); 2].map(|()| open());
        fs::remove_dir(&folder).unwrap();
        assert!(!is_locked(removed), "it was removed after it was opened");
        fs::create_dir(&folder).unwrap();
        assert!(!is_locked(replaced), "another node has created it again");
    }

    /// A node that starts removes what seems left, also between the creation of a cgroup and its lock.
    #[test]
    fn cgroups_are_created_while_other_nodes_start() {
        let root = stand_in(&[]);
        let mounts = mount(&root, "cgroup", "memory");
        let cgroups = Cgroups::open_in(&mounts, "4:memory:/node\n").unwrap();
        let (node, ends) = (root.path().join("node"), AtomicBool::new(false));
        thread::scope(|scope| {
            let removal = scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    remove_left(&node);
                }
            });
            let created: Vec<_> = (0..500).map(|_| cgroups.create(false)).collect();
            ends.store(true, Ordering::Relaxed);
            removal.join().unwrap();
            for cgroup in created {
                assert!(cgroup.unwrap().folders[0].exists());
            }
        });
    }

    /// 16 workers with 4,096 threads each used all threads of a machine, and kept the supervisor from running.
    #[test]
    fn worker_has_few_threads_and_a_small_share_of_the_processors() {
        let root = stand_in(&[]);
        let hierarchies = ["memory", "pids", "cpu,cpuacct"];
        let mounts: String = hierarchies.map(|name| mount(&root, "cgroup", name)).concat();
        let own = "8:pids:/node\n4:memory:/node\n1:cpu,cpuacct:/node\n";
        let cgroups = Cgroups::open_in(&mounts, own).unwrap();
        let mut worker = cgroups.create(true).unwrap();
        assert!(!worker.has_share());
        let folder = worker.folders[0].clone();
        for (file, before) in [("pids.max", "max"), ("cpu.shares", "1024")] {
            fs::write(folder.join(file), before).unwrap();
        }
        worker.limit_threads_and_time().unwrap();
        let read = |file| fs::read_to_string(folder.join(file)).unwrap();
        let threads: usize = read("pids.max").parse().unwrap();
        let processors = thread::available_parallelism().unwrap().get();
        assert!(threads >= 1024 && threads >= 4 * processors);
        assert!(threads == 1024 || threads == 4 * processors, "{threads}");
        assert!(worker.has_share());
        assert_eq!(read("cpu.shares"), "102");
    }

    #[test]
    fn ended_worker_leaves_no_cgroup() {
        let root = stand_in(&[]);
        let mounts = mount(&root, "cgroup", "memory,pids");
        let cgroups = Cgroups::open_in(&mounts, "4:memory,pids:/node\n").unwrap();
        let [first, second] = [true, false].map(|may_outlive| cgroups.create(may_outlive).unwrap());
        assert_eq!(fs::read_dir(root.path().join("node")).unwrap().count(), 2);
        drop((first, second));
        assert_eq!(fs::read_dir(root.path().join("node")).unwrap().count(), 0);
    }
}
